#!/bin/sh
# Installs a release of shoal into ~/.local after checking its sha256. No root is needed.
#
#     sh install.sh [TARBALL]      default: the newest beside this script
#
# PREFIX=/opt/shoal sh install.sh installs elsewhere.
set -eu
die() { echo "install: $*" >&2; exit 1; }
tarball=${1:-}
if [ -z "$tarball" ]; then
    for f in "$(dirname "$0")"/shoal-*-linux-x86_64.tar.gz; do
        [ -f "$f" ] && tarball=$f
    done
    [ -n "$tarball" ] || die "no shoal-*.tar.gz beside this script"
fi
[ -f "$tarball" ] || die "$tarball: no such file"
[ "$(uname -sm)" = "Linux x86_64" ] || die "for Linux on x86_64, this is $(uname -sm)"
[ -f "$tarball.sha256" ] || die "no $tarball.sha256: what cannot be checked is not installed"
prefix=${PREFIX:-${HOME:?}/.local}
wanted=$(cut -d ' ' -f 1 <"$tarball.sha256")
got=$(sha256sum "$tarball" | cut -d ' ' -f 1)
[ "$wanted" = "$got" ] || die "$tarball: sha256 is $got, $wanted expected"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -C "$work" -xzf "$tarball" --strip-components=1 --no-same-owner
mkdir -p "$prefix/bin" "$prefix/share"
cp -R "$work/share/." "$prefix/share/"
cp "$work/bin/shoal" "$prefix/bin/.shoal.new"
mv -f "$prefix/bin/.shoal.new" "$prefix/bin/shoal" # a running one goes on with the old file
"$prefix/bin/shoal" version -short >/dev/null || die "$prefix/bin/shoal does not run here"
echo "installed $prefix/bin/shoal $("$prefix/bin/shoal" version -short)"
case ":$PATH:" in
*":$prefix/bin:"*) ;;
*) echo "$prefix/bin is not in PATH yet" ;;
esac
