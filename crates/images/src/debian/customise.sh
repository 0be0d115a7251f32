#!/bin/sh
# Makes the root file system of the image `debian` out of freshly installed packages. Run by mmdebstrap with the root as $1.
set -eu
root=$1
units=$root/etc/systemd/system

# No service starts by itself, neither those of these packages nor those that are installed later. Whoever needs one starts it.
mkdir -p "$root/etc/systemd/system-preset"
echo 'disable *' >"$root/etc/systemd/system-preset/00-weighbridge.preset"
rm -rf "$units"/*.wants "$units"/*.requires
find "$units" -maxdepth 1 -type l -delete
ln -s /lib/systemd/system/multi-user.target "$units/default.target"

# What has no sense in a guest of a few seconds: consoles that nobody logs in on (one of them may be the channel to the guest),
# housekeeping by the clock, waiting for networks, updates of what nobody updated.
for unit in \
    autovt@.service console-getty.service container-getty@.service getty@.service getty-static.service serial-getty@.service \
    systemd-logind.service systemd-networkd-wait-online.service systemd-firstboot.service systemd-pcrphase.service \
    apt-daily.service apt-daily.timer apt-daily-upgrade.service apt-daily-upgrade.timer dpkg-db-backup.service \
    dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer logrotate.timer man-db.timer \
    systemd-tmpfiles-clean.timer \
    ldconfig.service systemd-hwdb-update.service systemd-journal-catalog-update.service systemd-sysusers.service \
    systemd-update-done.service systemd-machine-id-commit.service \
    dev-hugepages.mount proc-sys-fs-binfmt_misc.automount sys-fs-fuse-connections.mount sys-kernel-config.mount \
    sys-kernel-debug.mount sys-kernel-tracing.mount; do
    ln -s /dev/null "$units/$unit"
done

# The log stays in memory; a service that does not end holds nobody up.
mkdir -p "$root/etc/systemd/journald.conf.d" "$root/etc/systemd/system.conf.d"
printf '[Journal]\nStorage=volatile\nRuntimeMaxUse=8M\n' >"$root/etc/systemd/journald.conf.d/weighbridge.conf"
printf '[Manager]\nDefaultTimeoutStartSec=20s\nDefaultTimeoutStopSec=5s\n' >"$root/etc/systemd/system.conf.d/weighbridge.conf"
rm -rf "$root/var/log/journal"

# Plain files, which platforms mount their own over.
for file in hosts hostname resolv.conf fstab; do
    rm -f "$root/etc/$file"
done
printf '127.0.0.1\tlocalhost debian\n::1\tlocalhost\n' >"$root/etc/hosts"
echo debian >"$root/etc/hostname"
: >"$root/etc/resolv.conf"
: >"$root/etc/fstab"

# Root needs no password. The identity of the machine is made at each start.
sed -i 's/^root:[^:]*:/root::/' "$root/etc/shadow"
: >"$root/etc/machine-id"

# Mount points.
for directory in proc sys dev run tmp var/tmp mnt media .weighbridge; do
    mkdir -p "$root/$directory"
done
chmod 1777 "$root/tmp" "$root/var/tmp"

# Which versions they are, for the record.
chroot "$root" dpkg-query --show --showformat '${Package}=${Version}\n' | sort >"$root/../packages"
