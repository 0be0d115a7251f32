//! The scripts of `packaging/`, with stubs in place of what takes minutes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");

/// Makes what `packaging/dist` needs, in the working directory: `$1` is the project's `packaging`,
/// `cargo` writes its arguments into `asked` and "builds" shell scripts.
const DIST: &str = r#"
set -e
mkdir -p bin docs packaging target/packages
chmod g+s target/packages
cp -r "$1/dist" "$1/debian" packaging/
echo 'version = "9.9.9"' > Cargo.toml
touch docs/installing.md LICENSE README.md CHANGELOG.md SECURITY.md CONTRIBUTING.md target/packages/weighbridge_0.0.1_amd64.deb
printf '#!/bin/sh\ntouch "$2" "$3"\n' > packaging/notices
printf '#!/bin/sh\n' > bin/readelf
printf '#!/bin/sh\necho "$*" > linted\n[ -z "${REFUSE:-}" ]\n' > bin/lintian
cat > bin/rustc <<'END'
#!/bin/sh
case "$*" in
  *sysroot) echo /sysroot ;;
  *target-libdir*) echo / ;;
  *) printf 'commit-hash: 0123\nhost: here\n' ;;
esac
END
cat > bin/cargo <<'END'
#!/bin/sh
printf '%s\n' "$*" "$CARGO_ENCODED_RUSTFLAGS" > asked
triple="$(uname -m)-unknown-linux-musl"
mkdir -p "target/$triple/release" built/guest
echo "program ${HOLDS:-}" | xz > built/guest/weigh-probe.xz
echo program | xz > built/guest/weigh-kernels.xz
echo program | xz > built/guest/weigh-kernels.wasm.xz
printf '#!/bin/sh\nif [ "$1" = man ]; then echo page > "$2/weigh.1"; fi\n' > "target/$triple/release/weigh"
chmod +x "target/$triple/release/weigh"
echo '{"reason":"build-script-executed","package_id":"path+file:///a#weigh-report@9.9.9","env":[],"out_dir":"/no"}'
echo '{"reason":"build-script-executed","package_id":"path+file:///a#weighbridge@9.9.9","env":[],"out_dir":"built"}'
END
chmod +x packaging/notices bin/*
"#;

/// Runs `packaging/dist` for this machine with stubs, of which a guest program holds the text.
/// Returns nothing where there is no dpkg-deb.
fn dist(here: &Path, holds: &str) -> Option<Output> {
    dist_with(here, "HOLDS", holds)
}

/// The same with a variable for the stubs: `HOLDS`, or `REFUSE` if lintian refuses the package.
fn dist_with(here: &Path, variable: &str, value: &str) -> Option<Output> {
    let dpkg = Command::new("dpkg").arg("--print-architecture").output();
    let Ok(dpkg) = dpkg else {
        eprintln!("SKIPPED packages: no dpkg");
        return None;
    };
    let made = Command::new("bash").args(["-c", DIST, "stubs", PACKAGING]).current_dir(here).status();
    assert!(made.unwrap().success());
    let path = format!("{}/bin:{}", here.display(), std::env::var("PATH").unwrap());
    let output = Command::new("packaging/dist")
        .arg(String::from_utf8(dpkg.stdout).unwrap().trim())
        .current_dir(here)
        .env("PATH", path)
        .env(variable, value)
        .env("SOURCE_DATE_EPOCH", "1000000000")
        .env("CARGO_TARGET_DIR", "/elsewhere")
        .output();
    Some(output.unwrap())
}

/// What a command prints for the package of which the name ends so.
fn printed(here: &Path, command: &[&str], ending: &str) -> String {
    let made = std::fs::read_dir(here.join("target/packages")).unwrap();
    let mut names = made.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let name = names.find(|name| name.contains("9.9.9") && name.ends_with(ending)).unwrap();
    let path = here.join("target/packages").join(name);
    let output = Command::new(command[0]).args(&command[1..]).arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Writes a program for the shell, and the directories above it.
fn program(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// A script of the project.
fn script(name: &str) -> String {
    std::fs::read_to_string(Path::new(PACKAGING).join(name)).unwrap()
}

/// Runs `packaging/twice` in a repository whose `packaging/dist` is `dist`.
fn build_twice(here: &Path, dist: &str) -> Output {
    program(&here.join("packaging/twice"), &script("twice"));
    program(&here.join("packaging/dist"), dist);
    std::fs::write(here.join(".gitignore"), "target\n").unwrap();
    let commit = "git init --quiet && git add . && \
                  git -c user.name=a -c user.email=a@localhost commit --quiet --message=a && packaging/twice";
    Command::new("sh").args(["-c", commit]).current_dir(here).output().unwrap()
}

#[test]
fn two_builds_that_are_equal_pass() {
    let here = tempfile::tempdir().unwrap();
    let dist = "#!/bin/sh\nmkdir -p target/packages && echo \"0 $1\" > target/packages/SHA256SUMS\n";
    let output = build_twice(here.path(), dist);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(printed, "0 amd64\nboth builds gave the same 1 files\n");
    assert!(!here.path().join("target/packages/twice").exists());
}

#[test]
fn two_builds_that_differ_fail() {
    let here = tempfile::tempdir().unwrap();
    let dist = "#!/bin/sh\nmkdir -p target/packages && pwd > target/packages/SHA256SUMS\n";
    let output = build_twice(here.path(), dist);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the two builds differ"));
}

/// The size of directories depends on the file system, and `target/` may give its group to them.
#[test]
fn packages_do_not_depend_on_the_file_system_below_them() {
    let here = tempfile::tempdir().unwrap();
    let Some(output) = dist(here.path(), "") else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let archive = printed(here.path(), &["tar", "-tvf"], ".tar.xz");
    assert!(archive.contains("/docs/installing.md\n"), "README.md links to it: {archive}");
    let package = printed(here.path(), &["dpkg-deb", "--contents"], ".deb");
    for line in archive.lines().chain(package.lines()) {
        assert!(!line.split(' ').next().unwrap().contains('s'), "{line}");
    }
    let kilobytes = |line: &str| match line.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap() {
        bytes if line.starts_with('-') => bytes.div_ceil(1024),
        _ => 1,
    };
    let total: u64 = package.lines().filter(|line| !line.ends_with(" ./")).map(kilobytes).sum();
    let control = printed(here.path(), &["dpkg-deb", "--info"], ".deb");
    assert!(control.contains(&format!("\n Installed-Size: {total}\n")), "{total}: {control}");
}

/// A package of an earlier version lies there, and `CARGO_TARGET_DIR` names another directory.
#[test]
fn digests_are_those_of_what_was_built_now() {
    let here = tempfile::tempdir().unwrap();
    let Some(output) = dist(here.path(), "") else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let sums = std::fs::read_to_string(here.path().join("target/packages/SHA256SUMS")).unwrap();
    assert!(sums.lines().count() == 2 && sums.lines().all(|line| line.contains("9.9.9")), "{sums}");
    let asked = std::fs::read_to_string(here.path().join("asked")).unwrap();
    assert!(asked.contains(" --target-dir target "), "{asked}");
}

#[test]
fn what_lintian_calls_an_error_ends_the_script() {
    let here = tempfile::tempdir().unwrap();
    let Some(output) = dist_with(here.path(), "REFUSE", "yes") else { return };
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("lintian refuses the package"), "{said}");
    let linted = std::fs::read_to_string(here.path().join("linted")).unwrap();
    assert!(linted.starts_with("--fail-on error,warning target/packages/weighbridge_9.9.9_"), "{linted}");
}

#[test]
fn a_guest_program_with_a_path_of_this_machine_is_not_packaged() {
    let here = tempfile::tempdir().unwrap();
    let Some(output) = dist(here.path(), "/sysroot/lib/rustlib/src/rust/library") else { return };
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("weigh-probe holds the path /sysroot/lib/rustlib"), "{said}");
    let asked = std::fs::read_to_string(here.path().join("asked")).unwrap();
    assert!(asked.contains("--remap-path-prefix=/sysroot/lib/rustlib/src/rust=/rustc/0123"), "{asked}");
}

/// They are no crates, and bring no files from which their licences could be copied.
#[test]
fn notices_have_the_licences_of_the_libraries_of_c() {
    let here = tempfile::tempdir().unwrap();
    if !Path::new("/usr/share/common-licenses/LGPL-2.1").exists() {
        eprintln!("SKIPPED packages: this system does not have Debian's texts of licences");
        return;
    }
    let cargo = "#!/bin/sh\necho '{\"packages\": [{\"id\": \"w\", \"name\": \"weighbridge\", \"version\": \"1\", \
                 \"license\": \"Apache-2.0\", \"source\": null, \"manifest_path\": \"/w/Cargo.toml\", \
                 \"targets\": []}], \"resolve\": {\"nodes\": [{\"id\": \"w\", \"deps\": []}]}}'\n";
    program(&here.path().join("cargo"), cargo);
    std::fs::write(here.path().join("Cargo.lock"), "").unwrap();
    let path = format!("{}:{}", here.path().display(), std::env::var("PATH").unwrap());
    let mut notices = Command::new(Path::new(PACKAGING).join("notices"));
    notices.args(["triple", "NOTICES.txt", "sbom.json"]).current_dir(here.path()).env("PATH", path);
    let output = notices.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(here.path().join("NOTICES.txt")).unwrap();
    for part in ["Rich Felker", "GNU LESSER GENERAL PUBLIC LICENSE", "wasi-libc: "] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// A run succeeds as soon as anything was measured, so `tests/all-measured` looks at what was.
#[test]
fn a_run_in_which_an_environment_failed_passes_no_check() {
    let here = tempfile::tempdir().unwrap();
    let weigh = "#!/bin/sh\ncase \"$*\" in\n\
                 *json) echo \"  \\\"failures\\\": [$FAILURES],\" ;;\n\
                 *csv) printf 'a,b,c,d,e,environment,baseline,n\\r\\n\
                 noploop,,time,s,lower,native,native,2\\r\\n\
                 noploop,,time,s,lower,crun,native,0\\r\\n' ;;\nesac\n";
    program(&here.path().join("weigh"), weigh);
    let measured = |environments: &[&str], failures: &str| {
        let path = format!("{}:/usr/bin:/bin", here.path().display());
        let mut script = Command::new(Path::new(PACKAGING).join("../tests/all-measured"));
        script.arg("run").args(environments).env("PATH", path).env("FAILURES", failures);
        script.output().unwrap().status.success()
    };
    assert!(measured(&["native"], ""));
    assert!(!measured(&["native"], "{"));
    assert!(!measured(&["native", "runc"], ""));
    assert!(!measured(&["native", "crun"], ""), "a row without a value");
}
