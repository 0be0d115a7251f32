//! A fake QEMU that boots no OSv: it prints what OSv would, and runs the command line's program
//! here. It cannot show whether a real OSv behaves the same.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Reads the command line as OSv would find it, boots, runs, powers off. `MODE` is the fault,
/// `KERNELS` the program.
const SCRIPT: &str = r#"#!/bin/sh
# Which options it takes: all.
case "$*" in *'-machine none'*) exit 0;; esac
line=; disk=
echo "$@" >> "$0.log"
while [ $# -gt 0 ]; do
  case $1 in
    -append) line=$2; shift;;
    -drive) disk=${2#file=}; disk=${disk%%,if=*}; shift;;
  esac
  shift
done
[ -n "$line" ] || line=$(dd if="$disk" bs=1 skip=512 count=2048 2>/dev/null | tr '\000' '\n' | head -n 1)
say() { printf '%s\r\n' "$*"; }
printf 'SeaBIOS (version of a fake)\r\nBooting from ROM..'
say 'OSv v0.57.0-fake'
sleep 0.3
say 'Booted up in 300.00 ms'
say "Cmdline: $line"
set -- $line
while :; do
  case $1 in
    --env=*) export "${1#--env=}"; shift;;
    --*) shift;;
    *) break;;
  esac
done
program=$1; shift
[ "$program" = /weigh-kernels ] || { say "run_main(): cannot execute $program. Powering off."; exit 0; }
case MODE in
  hang) sleep 1004;;
  dies) kill -9 $$;;
  garbage) say '{"kernel": half a res'; exit 0;;
esac
KERNELS "$@" 2>&1 | sed 's/$/\r/'
[ MODE = lingers ] && sleep 1004
exit 0
"#;

/// Replaces `weigh-kernels` if that is not built: it takes a moment and reports success.
const KERNELS: &str = r#"#!/bin/sh
[ "$1" = noploop ] || { echo "there is no kernel $1" >&2; exit 2; }
sleep 0.2
echo "warming up" >&2
printf '{"kernel":"noploop","metrics":{"duration":{"value":0.2,"unit":"s"}},"check":{"passed":%s},"spin":"%s"}\n' "${WEIGH_PASSED:-true}" "$WEIGH_SPIN"
"#;

/// A fake QEMU and images for it.
pub struct Fake(tempfile::TempDir);

impl Fake {
    /// `kernels` is the program in the image.
    pub fn new(kernels: Option<&Path>) -> Self {
        let fake = Self(tempfile::Builder::new().prefix("weigh-test-osv-").tempdir_in("/var/tmp").unwrap());
        let own = fake.path("weigh-kernels");
        fake.program(&own, KERNELS);
        let kernels = kernels.unwrap_or(&own).display().to_string();
        for mode in ["runs", "hang", "dies", "garbage", "lingers"] {
            let script = SCRIPT.replace("MODE", mode).replace("KERNELS", &kernels);
            fake.program(&fake.path(mode), &script);
        }
        fs::write(fake.path("loader.elf"), b"\x7fELF of a fake").unwrap();
        fs::write(fake.path("usr.img"), vec![0; 1 << 20]).unwrap();
        fake
    }

    fn program(&self, path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// An environment with a QEMU of a mode, and an image.
    pub fn environment(&self, mode: &str, image: &str) -> String {
        let (binary, image) = (self.path(mode), self.path(image));
        format!("osv:accel=tcg,binary={},image={}", binary.display(), image.display())
    }

    /// The command lines with which a QEMU was started.
    pub fn started(&self, mode: &str) -> Vec<String> {
        let log = fs::read_to_string(self.path(&format!("{mode}.log"))).unwrap_or_default();
        log.lines().map(String::from).collect()
    }
}
