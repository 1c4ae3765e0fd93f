#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# OpenStack Swift as a local S3 server, for bench/buckets.sh: bench/swift.sh PORT FOLDER. An upload in parts becomes a
# manifest of them, so their bytes are not copied at its end. Its four servers are in PATH (pip install swift), and so
# is memcached (Debian: apt install memcached), without which each request asks for account and bucket again.
# FOLDER needs extended attributes. PORT and the four behind it are free; the user is test:tester, the secret testing.
set -eu
port=$1 folder=$2
mkdir -p "$folder/conf" "$folder/devices/d1"
cd "$folder/conf"
cat >swift.conf <<CONF
[swift-hash]
swift_hash_path_suffix = bench
[storage-policy:0]
name = one
default = yes
CONF
common() { # PORT
    printf '[DEFAULT]\nbind_ip = 127.0.0.1\nbind_port = %s\nworkers = 2\nswift_dir = %s\nuser = %s\n' "$1" "$folder/conf" "$(id -un)"
}
number=0
for server in account container object; do
    number=$((number + 1))
    swift-ring-builder $server.builder create 1 1 1 >ring.log
    swift-ring-builder $server.builder add "r1z1-127.0.0.1:$((port + number))/d1" 1 >ring.log
    swift-ring-builder $server.builder rebalance >ring.log
    {
        common $((port + number))
        printf 'devices = %s\nmount_check = false\n' "$folder/devices"
        printf '[pipeline:main]\npipeline = %s-server\n[app:%s-server]\nuse = egg:swift#%s\n' $server $server $server
    } >$server.conf
done
filters="catch_errors gatekeeper listing_formats cache s3api tempauth slo"
{
    common "$port"
    printf '[pipeline:main]\npipeline = %s proxy-server\n' "$filters"
    printf '[app:proxy-server]\nuse = egg:swift#proxy\naccount_autocreate = true\n'
    for filter in $filters; do
        printf '[filter:%s]\nuse = egg:swift#%s\n' "$filter" "$([ "$filter" = cache ] && echo memcache || echo "$filter")"
    done
} >proxy.conf
sed -i "s/^\[filter:cache\]/&\nmemcache_servers = 127.0.0.1:$((port + 4))/; s/^\[filter:tempauth\]/&\nuser_test_tester = testing .admin/" \
    proxy.conf
pids=
trap 'kill $pids; exit' TERM INT
setsid memcached -u nobody -l 127.0.0.1 -p $((port + 4)) &
pids=$!
for server in account container object proxy; do
    setsid swift-$server-server "$folder/conf/$server.conf" >"$folder/$server.log" 2>&1 &
    pids="$pids $!"
done
wait
