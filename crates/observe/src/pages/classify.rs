//! Counts of equal frames. A pure function of the entries and their owners.
//!
//! A class consists of all frames with the same content. Of k equal frames k - 1 can be saved, and
//! each of these belongs to one cell of the matrix. The frames of a class are considered in order,
//! the host's first, then the guests':
//!
//! 1. A frame with earlier frames of its own kind (anonymous or file) is saved by one of them: by
//!    one of the same guest if there is one, else by one of the host, else by one of another guest.
//!    So the first column is what KSM could save: all anonymous frames of a class but one.
//! 2. In a class of both kinds one more frame is saved, anonymous against file. It belongs to the
//!    first row of the matrix for which the class has such a pair.

use super::entry::{Content, Entry, flag};
use weigh_model::pages::{
    DuplicateMatrix, Frames, KindPairs, Merging, SharedFrames, SubjectPages, ZeroPages,
};

/// The owners of frames.
#[derive(Debug)]
pub(super) struct Owners {
    /// The subjects. A frame belongs to the first one that has it.
    pub(super) subjects: Vec<SubjectPages>,
    /// For each source the index of its subject, ascending.
    pub(super) subject_of: Vec<u32>,
    /// For each source whether it is a file in the page cache, which saves no copy.
    pub(super) is_cached_file: Vec<bool>,
}

/// The counts of all entries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Classified {
    pub(super) frames: Frames,
    pub(super) zero: ZeroPages,
    pub(super) shared: SharedFrames,
    pub(super) matrix: DuplicateMatrix,
    pub(super) merging: Merging,
}

/// A frame with all of its places.
#[derive(Debug, Clone, Copy)]
struct Frame {
    /// Index of the subject that it belongs to.
    subject: u32,
    is_anonymous: bool,
    is_mergeable: bool,
}

/// Counts entries that are in the order of [`Entry::by_content`]. `zeros` is the content of a page
/// full of zeros.
pub(super) fn classify(entries: &[Entry], zeros: Content, owners: &mut Owners) -> Classified {
    let mut all = Classified::default();
    let mut class = Class::new(owners.subjects.len());
    for equal in entries.chunk_by(|one, other| one.content() == other.content()) {
        let is_zero = equal[0].content() == zeros;
        class.begin();
        for places in equal.chunk_by(|one, other| one.frame() == other.frame()) {
            let frame = all.count_frame(places, owners);
            let subject = &mut owners.subjects[frame.subject as usize];
            subject.frames += 1;
            if is_zero {
                subject.zero_frames += 1;
                all.zero.anonymous += u64::from(frame.is_anonymous);
                all.zero.anonymous_mergeable += u64::from(frame.is_anonymous && frame.is_mergeable);
                all.zero.file += u64::from(!frame.is_anonymous);
            } else {
                let is_guest = subject.role.is_guest();
                class.add(frame, is_guest);
            }
        }
        if is_zero {
            continue;
        }
        if class.frames() == 1 {
            all.frames.unique += 1;
        } else {
            all.count_class(&class);
            // A second pass over the frames, now that they are known to have equals.
            for places in equal.chunk_by(|one, other| one.frame() == other.frame()) {
                let subject = owners.subject_of[places[0].source() as usize];
                owners.subjects[subject as usize].duplicate_frames += 1;
            }
        }
    }
    all
}

impl Classified {
    /// Counts a frame by its places, which are in the order of their sources.
    fn count_frame(&mut self, places: &[Entry], owners: &mut Owners) -> Frame {
        let has = |flags| places.iter().any(|place| place.has(flags));
        let is_anonymous = !has(flag::FILE);
        self.frames.total += 1;
        self.frames.anonymous += u64::from(is_anonymous);
        self.frames.file += u64::from(!is_anonymous);
        self.frames.memory_file += u64::from(!is_anonymous && has(flag::MEMORY_FILE));
        self.frames.huge += u64::from(has(flag::HUGE));

        let subject = |place: &Entry| owners.subject_of[place.source() as usize];
        let by_subject = || places.chunk_by(|one, other| subject(one) == subject(other));
        let mapped = |place: &&Entry| !owners.is_cached_file[place.source() as usize];
        let count = places.iter().filter(mapped).count() as u64;
        let mapping = by_subject().filter(|theirs| theirs.iter().any(|place| mapped(&place))).count() as u64;
        let shared = if has(flag::KSM) {
            Some(&mut self.shared.ksm)
        } else if count < 2 {
            None
        } else if is_anonymous {
            Some(&mut self.shared.forked)
        } else {
            Some(&mut self.shared.file)
        };
        if let Some(shared) = shared {
            shared.frames += 1;
            shared.places += count;
            shared.spared_between_subjects += mapping.saturating_sub(1);
        }

        let with_others = u64::from(by_subject().count() > 1);
        for theirs in places.chunk_by(|one, other| subject(one) == subject(other)) {
            let subject = &mut owners.subjects[subject(&theirs[0]) as usize];
            subject.places += theirs.len() as u64;
            subject.frames_with_others += with_others;
        }
        Frame {
            subject: owners.subject_of[places[0].source() as usize],
            is_anonymous,
            is_mergeable: has(flag::MERGEABLE | flag::KSM),
        }
    }

    fn count_class(&mut self, class: &Class) {
        let (anonymous, file) = (class.anonymous.rows(), class.file.rows());
        let rows = [
            &mut self.matrix.within_guest,
            &mut self.matrix.guest_host,
            &mut self.matrix.guest_guest,
            &mut self.matrix.host_host,
        ];
        let mixed = class.mixed_row();
        for (index, row) in rows.into_iter().enumerate() {
            *row += KindPairs {
                anonymous_pages: anonymous[index],
                file_pages: file[index],
                mixed_pages: u64::from(mixed == Some(index)),
            };
        }
        let ksm = class.mergeable.saturating_sub(1);
        self.merging.ksm_pages += ksm;
        self.merging.ksm_if_advised_pages += class.anonymous.frames().saturating_sub(1) - ksm;
        self.merging.by_file_content_pages += file.iter().sum::<u64>() + u64::from(mixed.is_some());
    }
}

/// The rows of the matrix in [`Kind::rows`].
const WITHIN: usize = 0;
const GUEST_HOST: usize = 1;
const GUEST_GUEST: usize = 2;
const HOST_HOST: usize = 3;

/// The frames of one content.
#[derive(Debug)]
struct Class {
    anonymous: Kind,
    file: Kind,
    /// Number of anonymous frames that KSM may merge.
    mergeable: u64,
    /// Whether a guest has both kinds.
    guest_has_both: bool,
}

/// The frames of one content and kind.
#[derive(Debug)]
struct Kind {
    /// Number of frames of the host.
    host: u64,
    /// Number of frames of all guests.
    guest: u64,
    /// Number of guests that have any.
    guests: u64,
    /// For each subject the class in which it was last seen. So nothing has to be cleared between
    /// classes.
    seen: Vec<u64>,
    class: u64,
}

impl Class {
    fn new(subjects: usize) -> Self {
        let kind = || Kind { host: 0, guest: 0, guests: 0, seen: vec![0; subjects], class: 0 };
        Self { anonymous: kind(), file: kind(), mergeable: 0, guest_has_both: false }
    }

    fn begin(&mut self) {
        for kind in [&mut self.anonymous, &mut self.file] {
            (kind.host, kind.guest, kind.guests) = (0, 0, 0);
            kind.class += 1;
        }
        (self.mergeable, self.guest_has_both) = (0, false);
    }

    fn add(&mut self, frame: Frame, is_guest: bool) {
        let (kind, other) = match frame.is_anonymous {
            true => (&mut self.anonymous, &self.file),
            false => (&mut self.file, &self.anonymous),
        };
        self.mergeable += u64::from(frame.is_anonymous && frame.is_mergeable);
        if !is_guest {
            kind.host += 1;
            return;
        }
        kind.guest += 1;
        let subject = frame.subject as usize;
        if kind.seen[subject] != kind.class {
            kind.seen[subject] = kind.class;
            kind.guests += 1;
        }
        self.guest_has_both |= other.seen[subject] == other.class;
    }

    fn frames(&self) -> u64 {
        self.anonymous.frames() + self.file.frames()
    }

    /// The row of the frame that is saved across kinds, if the class has both.
    fn mixed_row(&self) -> Option<usize> {
        let (one, other) = (&self.anonymous, &self.file);
        if one.frames() == 0 || other.frames() == 0 {
            None
        } else if self.guest_has_both {
            Some(WITHIN)
        } else if (one.host > 0 && other.guest > 0) || (one.guest > 0 && other.host > 0) {
            Some(GUEST_HOST)
        } else if one.guest > 0 {
            Some(GUEST_GUEST)
        } else {
            Some(HOST_HOST)
        }
    }
}

impl Kind {
    fn frames(&self) -> u64 {
        self.host + self.guest
    }

    /// Number of frames of the kind that are saved, by row.
    fn rows(&self) -> [u64; 4] {
        let mut rows = [0; 4];
        rows[WITHIN] = self.guest - self.guests;
        if self.host > 0 {
            rows[GUEST_HOST] = self.guests;
            rows[HOST_HOST] = self.host - 1;
        } else {
            rows[GUEST_GUEST] = self.guests.saturating_sub(1);
        }
        rows
    }
}
