#!/usr/bin/env bash
# nft writes rules that nft cannot read: the name of ICMPv6 depends on /etc/protocols.
#
# Guess: what `nft list ruleset` prints can be loaded again by the same nft anywhere, and protocols
#   that nft's manual names are known to it by themselves.
# Seen with nftables 1.0.6 of Debian 12, as root, in a network namespace of its own:
#   with /etc/protocols, `meta l4proto 58` is listed as "ipv6-icmp";
#   without the file, as in an image without the package netbase, loading that line fails with
#   "Could not resolve protocol name", while "icmpv6", "icmp" and "tcp" are read, and 58 is listed as
#   a number.
# So a ruleset that was listed on one machine may fail in a container. Numbers work everywhere.
set -euo pipefail
version=1.0.6-2+deb12u2

if [[ ${1:-} != inside ]]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    cd "$folder"
    for package in nftables libnftables1; do
        apt-get download -qq "$package=$version"
        dpkg-deb -x "$package"_*.deb .
    done
    export LD_LIBRARY_PATH=$folder/usr/lib/$(uname -m)-linux-gnu PATH=$folder/usr/sbin:$PATH
    printf 'ipv6-icmp\t58\tIPv6-ICMP\nicmp\t1\tICMP\ntcp\t6\tTCP\n' >protocols
    unshare --mount --net bash "$(cd "$OLDPWD" && realpath "$0")" inside
    exit
fi

nft --version
# The host's folder stays as it is.
mount -t tmpfs none /etc
touch /etc/protocols
rules() { printf 'table inet t { chain c { meta l4proto %s accept; }; }\n' "$1"; }
listed() { nft flush ruleset; rules "$1" | nft -f -; nft list ruleset | sed -n 's/.*l4proto \([^ ]*\) .*/\1/p'; }
expect() { [[ "$2" == "$3" ]] && echo "as seen before: $1: $2" || { echo "CHANGED: $1: $2, not $3"; exit 1; }; }

mount --bind protocols /etc/protocols
with=$(listed 58)
expect "listed with the file" "$with" ipv6-icmp
umount /etc/protocols
mount --bind /dev/null /etc/protocols
expect "listed without the file" "$(listed 58)" 58
error=$(rules "$with" | nft -c -f - 2>&1 | grep -o 'Could not resolve protocol name' || true)
expect "$with without the file" "$error" "Could not resolve protocol name"
for known in icmpv6 icmp tcp; do
    rules "$known" | nft -c -f -
done
echo "as seen before: icmpv6, icmp and tcp are read without the file"
