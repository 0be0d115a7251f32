//! The classification against a model that compares every frame with every other.

use super::super::classify::{Classified, Owners, classify};
use super::super::entry::{Entry, flag};
use proptest::prelude::*;
use weigh_model::pages::{KindPairs, SharedFrames, SubjectPages, SubjectRole};

/// Three guests, a helper, cached files.
const SUBJECTS: u32 = 5;
const GUESTS: u32 = 3;
/// Sources 0 and 1 belong to subject 0, and so on.
const SOURCES: u32 = 2 * SUBJECTS;

fn owners() -> Owners {
    let role = |subject| match subject {
        0..GUESTS => SubjectRole::Guest,
        3 => SubjectRole::Helper { guest: "0".into() },
        _ => SubjectRole::CachedFiles,
    };
    let subject = |subject: u32| SubjectPages::new(subject.to_string(), role(subject));
    Owners {
        subjects: (0..SUBJECTS).map(subject).collect(),
        subject_of: (0..SOURCES).map(|source| source / 2).collect(),
        is_cached_file: (0..SOURCES).map(|source| source / 2 == 4).collect(),
    }
}

/// A frame of the model.
#[derive(Debug, Clone)]
struct Made {
    content: u64,
    flags: u64,
    /// Sources that have the frame, perhaps several times.
    places: Vec<u32>,
}

impl Made {
    fn owner(&self) -> u32 {
        self.places.iter().map(|source| source / 2).min().unwrap()
    }

    fn is_host(&self) -> bool {
        self.owner() >= GUESTS
    }

    fn is_file(&self) -> bool {
        self.flags & flag::FILE != 0
    }

    fn subjects(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.places.iter().map(|source| source / 2).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

fn made() -> impl Strategy<Value = Made> {
    let kinds = [0, flag::MERGEABLE, flag::MERGEABLE | flag::KSM, flag::FILE, flag::FILE | flag::MEMORY_FILE];
    let flags = (prop::sample::select(kinds.to_vec()), prop::sample::select(vec![0, flag::HUGE]));
    (0..5u64, flags, prop::collection::vec(0..SOURCES, 1..5))
        .prop_map(|(content, (kind, huge), places)| Made { content, flags: kind | huge, places })
}

/// The counts of the frames, found by comparing every two.
fn model(frames: &[Made]) -> (Classified, Vec<SubjectPages>) {
    let mut ordered: Vec<&Made> = frames.iter().collect();
    ordered.sort_by_key(|frame| if frame.is_host() { 0 } else { frame.owner() + 1 });
    let mut all = Classified::default();
    let mut subjects = owners().subjects;
    for (index, frame) in ordered.iter().enumerate() {
        count_frame(frame, &mut all);
        let owner = &mut subjects[frame.owner() as usize];
        owner.frames += 1;
        if frame.content == 0 {
            owner.zero_frames += 1;
            all.zero.file += u64::from(frame.is_file());
            all.zero.anonymous += u64::from(!frame.is_file());
            all.zero.anonymous_mergeable += u64::from(frame.flags & flag::MERGEABLE != 0);
            continue;
        }
        let has_equal = ordered.iter().filter(|other| other.content == frame.content).count() > 1;
        owner.duplicate_frames += u64::from(has_equal);
        all.frames.unique += u64::from(!has_equal);
        count_saved_by_its_kind(frame, &ordered[..index], &mut all);
    }
    for content in 1..5 {
        let class: Vec<&Made> = frames.iter().filter(|frame| frame.content == content).collect();
        count_saved_across_kinds(&class, &mut all);
    }
    for frame in frames {
        count_places(frame, &mut all.shared, &mut subjects);
    }
    (all, subjects)
}

fn count_frame(frame: &Made, all: &mut Classified) {
    all.frames.total += 1;
    all.frames.anonymous += u64::from(!frame.is_file());
    all.frames.file += u64::from(frame.is_file());
    all.frames.memory_file += u64::from(frame.flags & flag::MEMORY_FILE != 0);
    all.frames.huge += u64::from(frame.flags & flag::HUGE != 0);
}

/// Counts a frame that is saved by one of its own kind among those `before` it: the host's frames
/// come first, then the guests'.
fn count_saved_by_its_kind(frame: &Made, before: &[&Made], all: &mut Classified) {
    let equal = |other: &&&Made| other.content == frame.content && other.is_file() == frame.is_file();
    let before: Vec<&&Made> = before.iter().filter(equal).collect();
    if before.is_empty() {
        return;
    }
    let matrix = &mut all.matrix;
    let row = if frame.is_host() {
        &mut matrix.host_host
    } else if before.iter().any(|other| other.owner() == frame.owner()) {
        &mut matrix.within_guest
    } else if before.iter().any(|other| other.is_host()) {
        &mut matrix.guest_host
    } else {
        &mut matrix.guest_guest
    };
    if frame.is_file() {
        row.file_pages += 1;
        all.merging.by_file_content_pages += 1;
    } else {
        row.anonymous_pages += 1;
    }
}

/// Counts the frame of a class that one of the other kind saves, and what KSM could save.
fn count_saved_across_kinds(class: &[&Made], all: &mut Classified) {
    let pairs = class.iter().flat_map(|one| class.iter().map(move |other| (one, other)));
    let mixed: Vec<_> = pairs.filter(|(one, other)| one.is_file() && !other.is_file()).collect();
    let any = |holds: fn(&Made, &Made) -> bool| mixed.iter().any(|(one, other)| holds(one, other));
    let matrix = &mut all.matrix;
    let row = if any(|one, other| !one.is_host() && one.owner() == other.owner()) {
        &mut matrix.within_guest
    } else if any(|one, other| one.is_host() != other.is_host()) {
        &mut matrix.guest_host
    } else if any(|one, _| !one.is_host()) {
        &mut matrix.guest_guest
    } else {
        &mut matrix.host_host
    };
    row.mixed_pages += u64::from(!mixed.is_empty());
    all.merging.by_file_content_pages += u64::from(!mixed.is_empty());
    let anonymous = class.iter().filter(|frame| !frame.is_file()).count() as u64;
    let advised = class.iter().filter(|frame| frame.flags & flag::MERGEABLE != 0).count() as u64;
    all.merging.ksm_pages += advised.saturating_sub(1);
    all.merging.ksm_if_advised_pages += anonymous.saturating_sub(1) - advised.saturating_sub(1);
}

/// Counts the places of a frame, and the copies that it already saves.
fn count_places(frame: &Made, all: &mut SharedFrames, subjects: &mut [SubjectPages]) {
    let theirs = frame.subjects();
    for source in &frame.places {
        subjects[(source / 2) as usize].places += 1;
    }
    for subject in &theirs {
        subjects[*subject as usize].frames_with_others += u64::from(theirs.len() > 1);
    }
    let mapped = frame.places.iter().filter(|source| *source / 2 != 4).count() as u64;
    let shared = if frame.flags & flag::KSM != 0 {
        &mut all.ksm
    } else if mapped < 2 {
        return;
    } else if frame.is_file() {
        &mut all.file
    } else {
        &mut all.forked
    };
    shared.frames += 1;
    shared.places += mapped;
    let others = theirs.iter().filter(|subject| **subject != 4).count() as u64;
    shared.spared_between_subjects += others.saturating_sub(1);
}

fn count(frames: &[Made]) -> (Classified, Vec<SubjectPages>) {
    let mut entries: Vec<Entry> = frames
        .iter()
        .zip(100u64..)
        .flat_map(|(made, frame)| {
            let place = move |(page, source): (u64, &u32)| {
                Entry::new([made.content, 7], frame, *source, page, made.flags).unwrap()
            };
            (0..).zip(&made.places).map(place).collect::<Vec<_>>()
        })
        .collect();
    entries.sort_unstable_by_key(Entry::by_content);
    let mut owners = owners();
    let classified = classify(&entries, [0, 7], &mut owners);
    (classified, owners.subjects)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn counting_is_comparing_every_two(frames in prop::collection::vec(made(), 0..25)) {
        let (counted, subjects) = count(&frames);
        let (expected, theirs) = model(&frames);
        prop_assert_eq!(&counted, &expected);
        prop_assert_eq!(subjects, theirs);
        // Of k equal frames k - 1 are saved, whatever their kinds.
        let mut contents: Vec<u64> = frames.iter().map(|made| made.content).filter(|content| *content > 0).collect();
        let all = contents.len();
        contents.sort_unstable();
        contents.dedup();
        let total = counted.matrix.total();
        prop_assert_eq!(total.total_pages() as usize, all - contents.len());
        prop_assert_eq!(total.anonymous_pages, counted.merging.ksm_pages + counted.merging.ksm_if_advised_pages);
    }
}

/// One class for each pattern in the rules.
#[test]
fn each_rule_has_its_cell() {
    let made = |content, flags, place: u32| Made { content, flags, places: vec![place] };
    let row =
        |anonymous_pages, file_pages, mixed_pages| KindPairs { anonymous_pages, file_pages, mixed_pages };
    let file = flag::FILE;
    // Three in the first guest, one in the second, one in the helper.
    let anonymous = [made(1, 0, 0), made(1, 0, 0), made(1, 0, 1), made(1, 0, 2), made(1, 0, 6)];
    let matrix = count(&anonymous).0.matrix;
    assert_eq!((matrix.within_guest, matrix.guest_host), (row(2, 0, 0), row(2, 0, 0)));
    // A file of the host, and its copy in the memory of two machines.
    let machines = [made(2, file, 8), made(2, 0, 0), made(2, 0, 2)];
    let matrix = count(&machines).0.matrix;
    assert_eq!((matrix.guest_host, matrix.guest_guest), (row(0, 0, 1), row(1, 0, 0)));
    // A copied root tree: two files in two containers, and nowhere else.
    let copied = [made(3, file, 0), made(3, file, 2)];
    assert_eq!(count(&copied).0.matrix.guest_guest, row(0, 1, 0));
    // Twice in the page cache of the host, used by no guest.
    let idle = [made(4, file, 8), made(4, file, 8)];
    let matrix = count(&idle).0.matrix;
    assert_eq!((matrix.host_host, matrix.of_guests()), (row(0, 1, 0), row(0, 0, 0)));
    // A guest that has read a file.
    let read = [made(1, file, 0), made(1, 0, 1), made(1, file, 8)];
    let matrix = count(&read).0.matrix;
    assert_eq!((matrix.within_guest, matrix.guest_host), (row(0, 0, 1), row(0, 1, 0)));
}
