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
# Refused: one line, and nothing is left of what this start made.
refused() { # MOUNT-OPTIONS ARGUMENTS...
    run 1 disk on_disk "$1" sh -c '"$@"; status=$?; find disk/* >&2 2>/dev/null; exit $status' "$@"
    one_line disk.err
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
# Room for few bytes, or for few files and folders, one of which is the root.
for options in size=4k size=16k nr_inodes=2 nr_inodes=3 nr_inodes=4; do
    refused $options "$mics" tokenize long.txt --out disk/a/out.bin
    refused $options "$mics" train run.json --ranks 2 --out disk/a/out --set 'data.train=["long.txt"]'
done
# The weights take 108 KiB, each file beside them a page or two; the root is a file too.
for options in size=4k size=16k size=112k size=116k nr_inodes=2 nr_inodes=3 nr_inodes=4 nr_inodes=5; do
    refused $options "$mics" convert out disk/a/out
done
exit 0
