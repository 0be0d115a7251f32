//! Tests of paths and directories. If this user is root, they involve another user.

use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::{chown, symlink};

/// The user without rights.
const NOBODY: u32 = 65534;

fn mode(path: &Path, bits: u32) {
    fs::set_permissions(path, Permissions::from_mode(bits)).unwrap();
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn is_root(test: &str) -> bool {
    let is_root = crate::facts::is_root();
    if !is_root {
        eprintln!("SKIPPED {test}: only root can give directories to another user");
    }
    is_root
}

#[test]
fn new_directories_are_closed_and_existing_ones_stay_or_are_closed() {
    let base = tempfile::tempdir().unwrap();
    let deep = base.path().join("a/b");
    check(&deep).unwrap();
    assert!(!base.path().join("a").exists(), "a check makes nothing");
    prepare(&deep).unwrap();
    assert_eq!((mode_of(&base.path().join("a")), mode_of(&deep)), (0o700, 0o700));
    mode(&deep, 0o755);
    prepare(&deep).unwrap();
    assert_eq!(mode_of(&deep), 0o755, "a directory of the user's keeps its mode");
    close(&deep).unwrap();
    assert_eq!(mode_of(&deep), 0o700);
    let file = base.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(prepare(&file), Err(UnsafePath::NotADirectory(_))));
    assert!(matches!(check(&file.join("below")), Err(UnsafePath::NotADirectory(_))));
}

#[test]
fn paths_that_others_may_write_are_refused() {
    let base = tempfile::tempdir().unwrap();
    let (parent, own) = (base.path().join("parent"), base.path().join("parent/own"));
    fs::create_dir_all(&own).unwrap();
    for (directory, bits) in [(&parent, 0o777), (&own, 0o777), (&own, 0o1777)] {
        mode(directory, bits);
        let error = prepare(&own).unwrap_err();
        assert!(matches!(&error, UnsafePath::Writable { path, .. } if path == directory), "{error}");
        assert!(error.to_string().contains(&format!("{bits:04o}")), "{error}");
        assert!(check(&own).is_err() && close(&own).is_err());
        mode(directory, 0o755);
    }
    // As in /tmp, others may add something but not replace what is ours.
    mode(&parent, 0o1777);
    prepare(&own).unwrap();
    prepare(&parent.join("new")).unwrap();
}

/// Gives a directory a list in which one more entry has all rights. Returns whether the file system
/// has such lists.
fn list(directory: &Path, attribute: &str, tag: u16, who: u32) -> bool {
    let handle = open(directory, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let mut entries =
        [(OWNER, 7, NO_USER), (tag, 7, who), (GROUP, 5, NO_USER), (MASK, 7, NO_USER), (OTHERS, 5, NO_USER)];
    entries.sort_by_key(|(tag, ..)| *tag);
    match fsetxattr(&handle, attribute, &bytes_of(&entries), XattrFlags::empty()) {
        Err(Errno::OPNOTSUPP) => false,
        set => {
            set.unwrap();
            true
        }
    }
}

#[test]
fn paths_that_a_list_lets_others_write_are_refused() {
    let base = tempfile::tempdir().unwrap();
    let path = |name: &str| base.path().join(name);
    let made = |name: &str| {
        fs::create_dir_all(path(name).join("own")).unwrap();
        path(name)
    };
    if !list(&made("user"), ACL, USER, NOBODY) {
        eprintln!("SKIPPED paths_that_a_list_lets_others_write_are_refused: no access control lists here");
        return;
    }
    assert!(list(&made("group"), ACL, NAMED_GROUP, NOBODY));
    for listed in [path("user"), path("group")] {
        for below in [listed.clone(), listed.join("own"), listed.join("new")] {
            for error in [prepare(&below), check_output(&below, None), check_output(&below, Some(1))] {
                let error = error.unwrap_err();
                assert!(matches!(&error, UnsafePath::Writable { path, .. } if *path == listed), "{error}");
            }
        }
        assert!(check(&listed).is_err() && close(&listed).is_err());
        check_output(&listed, Some(NOBODY)).unwrap();
        // The rights of the group bound the list.
        mode(&listed, 0o755);
        prepare(&listed.join("own")).unwrap();
        check_output(&listed, None).unwrap();
    }
    // A list that names only this user lets nobody else in.
    let own = rustix::process::geteuid().as_raw();
    assert!(list(&made("own"), ACL, USER, own));
    prepare(&path("own/own")).unwrap();
    // What is made in this one gets the list, so others may write it.
    assert!(list(&made("default"), DEFAULT_ACL, USER, NOBODY));
    assert!(prepare_output(&path("default"), None).is_err());
    assert!(prepare_output(&path("default/runs"), None).is_err());
    prepare_output(&path("default/more"), Some(NOBODY)).unwrap();
}

#[test]
fn paths_that_others_own_are_refused() {
    if !is_root("paths_that_others_own_are_refused") {
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let shared = base.path().join("shared");
    fs::create_dir(&shared).unwrap();
    mode(&shared, 0o1777);
    let theirs = shared.join("theirs");
    fs::create_dir_all(theirs.join("ours")).unwrap();
    chown(&theirs, Some(NOBODY), Some(NOBODY)).unwrap();
    for path in [theirs.clone(), theirs.join("ours"), theirs.join("new")] {
        let error = prepare(&path).unwrap_err();
        assert!(matches!(&error, UnsafePath::Foreign { path, owner: NOBODY } if *path == theirs), "{error}");
        assert!(check(&path).is_err() || !path.exists());
    }
    assert!(!theirs.join("new").exists());
    // A link of another user's leads to our directory: they may redirect it at any time.
    let (ours, link) = (base.path().join("ours"), shared.join("link"));
    fs::create_dir(&ours).unwrap();
    symlink(&ours, &link).unwrap();
    prepare(&link).unwrap();
    std::os::unix::fs::lchown(&link, Some(NOBODY), Some(NOBODY)).unwrap();
    assert!(matches!(prepare(&link), Err(UnsafePath::Foreign { owner: NOBODY, .. })));
    // A link that root made leads to another user's directory.
    let link = base.path().join("to-theirs");
    symlink("shared/theirs/ours", &link).unwrap();
    assert!(matches!(prepare(&link), Err(UnsafePath::Foreign { owner: NOBODY, .. })));
}

#[test]
fn links_are_followed_as_the_kernel_follows_them() {
    let base = tempfile::tempdir().unwrap();
    let base = base.path().canonicalize().unwrap();
    fs::create_dir_all(base.join("a/b")).unwrap();
    symlink("../a/./b/..", base.join("a/up")).unwrap();
    symlink(base.join("a/up"), base.join("absolute")).unwrap();
    symlink("loop", base.join("loop")).unwrap();
    prepare(&base.join("absolute/b/new")).unwrap();
    assert!(base.join("a/b/new").is_dir());
    let error = prepare(&base.join("loop/x")).unwrap_err();
    assert!(error.to_string().contains("follow"), "{error}");
}

#[test]
fn outputs_may_lie_with_root_this_user_and_one_more() {
    if !is_root("outputs_may_lie_with_root_this_user_and_one_more") {
        return;
    }
    let base = tempfile::tempdir().unwrap();
    mode(base.path(), 0o755);
    let theirs = base.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    chown(&theirs, Some(NOBODY), Some(NOBODY)).unwrap();
    mode(&theirs, 0o775);
    let file = theirs.join("report.html");
    for path in [&theirs, &file] {
        assert!(check_output(path, None).is_err() && check_output(path, Some(1000)).is_err());
        check_output(path, Some(NOBODY)).unwrap();
    }
    symlink("/etc/passwd", &file).unwrap();
    std::os::unix::fs::lchown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
    assert!(check_output(&file, None).is_err());
    assert!(check_input(&file, Some(NOBODY)).is_ok(), "the link leads to a file of root's");
    mode(&theirs, 0o777);
    assert!(check_output(&file, Some(NOBODY)).is_err(), "everybody may write there");
    let input = base.path().join("input");
    assert!(check_input(&input, None).is_err(), "there is none");
    fs::write(&input, "").unwrap();
    check_input(&input, None).unwrap();
    mode(&input, 0o666);
    assert!(check_input(&input, None).is_err());
    check_output(&base.path().join("new/report.html"), None).unwrap();
}

#[test]
fn outputs_write_through_no_link_in_a_shared_directory() {
    if !is_root("outputs_write_through_no_link_in_a_shared_directory") {
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let precious = base.path().join("precious");
    fs::write(&precious, "x").unwrap();
    let shared = base.path().join("shared");
    fs::create_dir(&shared).unwrap();
    mode(&shared, 0o1777);
    let report = shared.join("report.html");
    for text in ["first", "second"] {
        write_output(&report, text.as_bytes(), None).unwrap();
        assert_eq!(fs::read_to_string(&report).unwrap(), text);
    }
    // An existing file is replaced by name: the write goes neither through a link nor to another
    // name of the file.
    fs::remove_file(&report).unwrap();
    fs::hard_link(&precious, &report).unwrap();
    write_output(&report, b"report", None).unwrap();
    fs::remove_file(&report).unwrap();
    symlink(&precious, &report).unwrap();
    write_output(&report, b"report", None).unwrap();
    assert_eq!((fs::read_to_string(&precious).unwrap(), report.is_symlink()), ("x".into(), false));
    fs::remove_file(&report).unwrap();
    symlink(&precious, &report).unwrap();
    std::os::unix::fs::lchown(&report, Some(NOBODY), Some(NOBODY)).unwrap();
    assert!(write_output(&report, b"report", None).is_err() && report.is_symlink());
    // In our own directory a link is followed.
    let (link, target) = (base.path().join("link"), base.path().join("target"));
    symlink(&target, &link).unwrap();
    write_output(&link, b"report", None).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "report");
    prepare_output(&base.path().join("new/runs"), None).unwrap();
    assert!(mode_of(&base.path().join("new/runs")) & 0o700 == 0o700);
    assert!(prepare_output(&shared, None).is_err());
    assert!(fs::read_to_string(&precious).is_ok_and(|text| text == "x"));
}

#[test]
fn only_regular_files_are_opened_and_nothing_is_waited_for() {
    let base = tempfile::tempdir().unwrap();
    let path = |name: &str| base.path().join(name);
    fs::write(path("file"), "text").unwrap();
    symlink(path("file"), path("link")).unwrap();
    fs::create_dir(path("directory")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), Mode::RWXU).unwrap();
    assert_eq!(read_regular(&path("file")).unwrap(), b"text");
    for name in ["link", "directory", "pipe", "absent"] {
        assert!(read_regular(&path(name)).is_err(), "{name}");
    }
    let new = open_durable(&path("new"), OpenOptions::new().append(true).create(true)).unwrap();
    assert!(!is_exposed(&new) && mode_of(&path("new")) == 0o600);
    mode(&path("file"), 0o644);
    assert!(is_exposed(&open_durable(&path("file"), OpenOptions::new().read(true)).unwrap()));
}

/// Whether a user without the rights of root can look at a path.
fn reaches(user: u32, path: &Path) -> bool {
    let test = crate::command::Invocation::new("setpriv")
        .args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".into()])
        .args(["test", "-e"])
        .arg(path);
    test.run().unwrap().status.success()
}

#[test]
fn only_admitted_users_may_search() {
    if !is_root("only_admitted_users_may_search") {
        return;
    }
    let base = tempfile::tempdir().unwrap();
    mode(base.path(), 0o711);
    let (closed, inside) = (base.path().join("closed"), base.path().join("closed/inside"));
    prepare(&closed).unwrap();
    fs::create_dir(&inside).unwrap();
    assert!(!reaches(100_000, &inside));
    if let Err(error) = grant_traverse(&closed, 100_000) {
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{error}");
        eprintln!("SKIPPED only_admitted_users_may_search: no access control lists here");
        return;
    }
    grant_traverse(&closed, 100_000).unwrap();
    assert!(reaches(100_000, &inside) && !reaches(NOBODY, &inside) && !reaches(100_001, &inside));
    grant_traverse(&closed, 200_000).unwrap();
    assert!(reaches(100_000, &inside) && reaches(200_000, &inside) && !reaches(NOBODY, &inside));
    // An admission is no reason to close the directory again, or to refuse it.
    close(&closed).unwrap();
    assert!(reaches(100_000, &inside));
    mode(&closed, 0o700);
    assert!(!reaches(100_000, &inside), "closed again it is closed to everybody");
    let admission = SearchPermission::to([closed.as_path(), base.path()], 100_000);
    assert!(reaches(100_000, &inside) && mode_of(base.path()) == 0o711);
    drop(admission);
    assert!(!reaches(100_000, &inside) && mode_of(&closed) == 0o700);
    grant_traverse(&closed, 100_000).unwrap();
    let list = crate::command::Invocation::new("setpriv")
        .args(["--reuid=100000", "--regid=100000", "--clear-groups", "ls"])
        .arg(&closed);
    assert!(!list.run().unwrap().status.success(), "it may only be searched");
}
