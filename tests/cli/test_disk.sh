# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# A disk that is full or read-only is a failure of the system, whichever verb meets it. Skipped where a test may not mount one.
. "$(dirname "$0")/lib.sh"

mkdir disk
on_disk() { # MOUNT-OPTIONS ARGUMENTS...
    on_disk_options=$1
    shift
    unshare -rm sh -c 'mount -t tmpfs -o "$0" none disk && exec "$@"' "$on_disk_options" "$@"
}
on_disk size=64k true || { echo "skipped: no file system can be mounted here"; exit 77; }

run 0 train "$mics" train run.json --ranks 2 --steps 2
awk '{ for (i = 0; i < 30; i++) print }' text.txt >long.txt
for options in size=64k ro; do
    run 1 disk on_disk $options "$mics" convert out disk/out
    one_line disk.err
    run 1 disk on_disk $options "$mics" tokenize long.txt --out disk/out.bin
    one_line disk.err
    run 1 disk on_disk $options "$mics" train run.json --ranks 2 --out disk/out \
        --set 'data.train=["long.txt"]'
    one_line disk.err
done
exit 0
