#!/bin/sh
# In mmdebstrap's place for tests: makes the least that is taken for a system, and does $STEP in the middle of it.
echo once >>"$COUNT"
echo 'I: making a fake' >&2
for argument; do case $argument in /*/tree) tree=$argument ;; esac; done
mkdir -p "$tree/sbin" "$tree/etc" "$tree/usr/bin" "$tree/.weighbridge" "$tree/dev" "$tree/var/tmp"
echo 'noise on standard output'
touch "$tree/sbin/init" "$tree/etc/os-release"
mount -t tmpfs none "$tree/dev"
touch "$tree/dev/null"
eval "$STEP"
umount "$tree/dev"
touch "$tree/usr/bin/dpkg"
echo base=1 >"$tree/../packages"
