//! The built-in studies, and those of users beside them.

use super::*;
use crate::file::tests::GOOD;
use std::collections::BTreeSet;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("studies")
}

/// Files of a directory, by their names within the folder of studies.
fn files() -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for study in std::fs::read_dir(folder()).unwrap() {
        let study = study.unwrap();
        for file in std::fs::read_dir(study.path()).unwrap() {
            let names =
                [study.file_name(), file.unwrap().file_name()].map(|name| name.into_string().unwrap());
            files.insert(format!("studies/{}", names.join("/")));
        }
    }
    files
}

#[test]
fn every_file_of_the_folder_is_listed() {
    let mut listed: BTreeSet<String> = BTreeSet::new();
    for study in EMBEDDED {
        listed.insert(format!("studies/{}/study.toml", study.name));
        listed.extend(study.experiments.iter().map(|file| (*file).to_string()));
    }
    assert_eq!(files(), listed, "add a new file to EMBEDDED");
}

#[test]
fn study_files_are_named_after_their_experiments() {
    for (files, study) in EMBEDDED.iter().zip(library().unwrap().studies()) {
        assert_eq!(files.name, study.name);
        for (file, experiment) in files.experiments.iter().zip(&study.experiments) {
            let expected = format!("studies/{}/{}.toml", study.name, experiment.name.replace('/', "-"));
            assert_eq!(*file, expected);
        }
    }
}

#[test]
fn built_in_studies_are_written_and_read_as_the_same() {
    for study in library().unwrap().studies() {
        let text = study.to_toml();
        let again = file::read_study(Path::new("again.toml"), &text);
        assert_eq!(again.unwrap_or_else(|error| panic!("{error}\n{text}")), *study);
    }
}

/// The user's study, and a second with more names.
fn with_users() -> Library {
    let mut library = library().unwrap();
    library.add(Path::new("mine.toml"), GOOD).unwrap();
    let more = GOOD
        .replace("mine-2026", "theirs")
        .replace("'table-1/build'", "'table-1/a'")
        .replace("name = 'text'", "name = 'table-1/b'\nalso = ['fig-1', 'fig-99']");
    library.add(Path::new("theirs.toml"), &more).unwrap();
    library
}

#[test]
fn names_stand_for_experiments() {
    let library = with_users();
    let found = |name: &str| -> Vec<String> {
        library
            .find(name)
            .unwrap_or_else(|error| panic!("{error}"))
            .iter()
            .map(FoundExperiment::name)
            .collect()
    };
    assert_eq!(found("theirs"), ["theirs/table-1/a", "theirs/table-1/b"]);
    assert_eq!(found("theirs/table-1"), ["theirs/table-1/a", "theirs/table-1/b"]);
    assert_eq!(found("theirs/table-1/b"), ["theirs/table-1/b"]);
    assert_eq!(found("theirs/fig-1"), ["theirs/table-1/a", "theirs/table-1/b"]);
    assert_eq!(found("theirs/fig-2"), ["theirs/table-1/a"]);
    assert_eq!(found("mine-2026/text"), ["mine-2026/text"]);
    for name in library.names() {
        assert!(library.find(&name).is_ok(), "{name}");
    }
    let names: Vec<String> = library.names().into_iter().filter(|name| name.starts_with("theirs")).collect();
    assert_eq!(
        names,
        [
            "theirs",
            "theirs/table-1",
            "theirs/table-1/a",
            "theirs/fig-1",
            "theirs/fig-2",
            "theirs/fig-2/left",
            "theirs/table-1/b",
            "theirs/fig-99"
        ]
    );
}

#[test]
fn an_unknown_name_is_reported_with_the_nearest() {
    let library = with_users();
    let nearest = |name: &str| {
        let unknown = library.find(name).unwrap_err();
        assert_eq!(
            (unknown.name.as_str(), unknown.to_string()),
            (name, format!("there is no study or experiment `{name}`"))
        );
        unknown.nearest
    };
    assert_eq!(nearest("thiers/table-1").as_deref(), Some("theirs/table-1"));
    assert_eq!(nearest("theirs/table-1/c").as_deref(), Some("theirs/table-1/a"));
    assert_eq!(nearest("mine-2026/table-1/biuld").as_deref(), Some("mine-2026/table-1/build"));
    // A name that only one study has is found without the study's name.
    assert_eq!(nearest("fig-99").as_deref(), Some("theirs/fig-99"));
    assert_eq!(nearest("zzzzzzzz"), None);
    assert_eq!(library.find("theirs/table-").unwrap_err().nearest.as_deref(), Some("theirs/table-1"));
    assert!(library.find("theirs/").is_err() && library.find("").is_err());
}

#[test]
fn users_bring_their_own_without_compiling() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.toml");
    std::fs::write(&path, GOOD).unwrap();
    let library = Library::load(std::slice::from_ref(&path)).unwrap();
    assert_eq!(library.studies().len(), EMBEDDED.len() + 1);
    assert_eq!(library.get("mine-2026").unwrap().experiments.len(), 2);
    let error = Library::load(&[path.clone(), path.clone()]).unwrap_err();
    assert_eq!(&error.text[error.span.unwrap()], "'mine-2026'");
    assert_eq!((error.file, error.message.as_str()), (path, "`mine-2026` is the name of another study"));
}

#[test]
fn built_in_names_are_reserved() {
    for study in library().unwrap().studies() {
        let text = GOOD.replace("mine-2026", &study.name);
        let error = library().unwrap().add(Path::new("x.toml"), &text).unwrap_err();
        assert!(error.message.contains("of another study") && error.help.unwrap().contains("rename"));
    }
}

#[test]
fn a_missing_study_file_is_reported_with_its_path() {
    let gone = PathBuf::from("/nonexistent/study.toml");
    let error = Library::load(std::slice::from_ref(&gone)).unwrap_err();
    assert_eq!((error.file, error.span), (gone, None));
    assert!(error.message.contains("cannot read the study"), "{}", error.message);
}
