//! What of the simulated disk is in memory, and what is on the medium.

use rand_core::Rng;
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// The unit that a medium writes entirely or not at all, bytes: the smallest sector of disks.
const SECTOR: usize = 512;

/// A number below `bound`, which is not 0. The bias of the remainder does not matter here.
pub(super) fn below(random: &mut Pcg64, bound: usize) -> usize {
    (random.next_u64() % bound as u64) as usize
}

fn coin(random: &mut Pcg64) -> bool {
    below(random, 2) == 0
}

/// Number of a file or directory, to which names refer.
pub(super) type Id = usize;

/// The root directory.
const ROOT: Id = 0;

#[derive(Debug)]
pub(super) struct Shadow {
    nodes: Vec<Node>,
    /// Changes of names so far.
    changes: u64,
}

#[derive(Debug)]
enum Node {
    File(Content),
    Directory(Names),
}

/// The content of a file: as programs see it, as it is on the medium, and what was written since.
#[derive(Debug, Default)]
struct Content {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Write>,
}

#[derive(Debug)]
enum Write {
    Bytes { at: usize, bytes: Vec<u8> },
    Length(usize),
}

impl Write {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Bytes { at, bytes } => put(content, *at, bytes),
            Self::Length(length) => content.resize(*length, 0),
        }
    }

    /// Writes a random selection of the sectors, in any order.
    fn apply_in_part(&self, content: &mut Vec<u8>, random: &mut Pcg64) {
        match self {
            Self::Bytes { at, bytes } => {
                let (mut from, end) = (*at, at + bytes.len());
                while from < end {
                    let to = end.min((from / SECTOR + 1) * SECTOR);
                    if coin(random) {
                        put(content, from, &bytes[from - at..to - at]);
                    }
                    from = to;
                }
            }
            Self::Length(_) if coin(random) => self.apply(content),
            Self::Length(_) => {}
        }
    }
}

/// Writes bytes at an offset. A gap before them reads as zeros.
fn put(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[at..end].copy_from_slice(bytes);
}

impl Content {
    fn write(&mut self, write: Write) {
        write.apply(&mut self.live);
        self.pending.push(write);
    }

    fn sync(&mut self) {
        for write in self.pending.drain(..) {
            write.apply(&mut self.durable);
        }
    }

    /// The medium refuses some of what was written since the last sync. The system reports that
    /// once and considers all of it written: no later sync tries again, and programs still see it.
    fn fail_sync(&mut self, random: &mut Pcg64) {
        for write in self.pending.drain(..) {
            match write {
                Write::Length(_) => write.apply(&mut self.durable),
                Write::Bytes { .. } => write.apply_in_part(&mut self.durable, random),
            }
        }
    }

    fn lose_power(&mut self, fate: Fate, random: &mut Pcg64) {
        match fate {
            Fate::Lost => {}
            Fate::Kept => self.sync(),
            Fate::Prefix => {
                let whole = below(random, self.pending.len() + 1);
                for write in &self.pending[..whole] {
                    write.apply(&mut self.durable);
                }
                if let Some(Write::Bytes { at, bytes }) = self.pending.get(whole) {
                    put(&mut self.durable, *at, &bytes[..below(random, bytes.len() + 1)]);
                }
            }
            Fate::Any => {
                for write in &self.pending {
                    write.apply_in_part(&mut self.durable, random);
                }
                // The length may be on the medium without the content.
                if self.durable.len() < self.live.len() && coin(random) {
                    self.durable.resize(self.live.len(), 0);
                }
            }
        }
        self.pending.clear();
        self.live.clone_from(&self.durable);
    }
}

/// The names in a directory.
#[derive(Debug, Default)]
struct Names {
    live: BTreeMap<OsString, Id>,
    durable: BTreeMap<OsString, Id>,
    /// Each with its number among the changes of the whole disk.
    pending: Vec<(u64, Change)>,
}

#[derive(Debug)]
enum Change {
    Set(OsString, Id),
    Unset(OsString),
    /// A single change, so either both names change or neither does (rename(2)).
    Move {
        from: OsString,
        to: OsString,
        id: Id,
    },
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<OsString, Id>) {
        match self {
            Self::Set(name, id) => {
                names.insert(name.clone(), *id);
            }
            Self::Unset(name) => {
                names.remove(name);
            }
            Self::Move { from, to, id } => {
                names.remove(from);
                names.insert(to.clone(), *id);
            }
        }
    }
}

/// What a power failure does to what has not been synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing is kept.
    Lost,
    /// All of it is kept: it had just been written back.
    Kept,
    /// The earliest changes are kept, as on file systems where one journal orders all changes.
    Prefix,
    /// Any part is kept: a program can rely only on the order that fsync(2) promises.
    Any,
}

impl Fate {
    pub(super) fn draw(random: &mut Pcg64) -> Self {
        [Self::Lost, Self::Kept, Self::Prefix, Self::Any, Self::Any][below(random, 5)]
    }
}

impl Shadow {
    pub(super) fn new() -> Self {
        Self { nodes: vec![Node::Directory(Names::default())], changes: 0 }
    }

    /// The current target of a path relative to the root.
    pub(super) fn find(&self, path: &Path) -> Option<Id> {
        self.follow(path, |names| &names.live)
    }

    fn follow(&self, path: &Path, view: impl Fn(&Names) -> &BTreeMap<OsString, Id>) -> Option<Id> {
        let mut at = ROOT;
        for part in path.components() {
            match (part, &self.nodes[at]) {
                (Component::CurDir, _) => {}
                (Component::Normal(name), Node::Directory(names)) => at = *view(names).get(name)?,
                _ => return None,
            }
        }
        Some(at)
    }

    /// Whether a power failure now would lose nothing of a file, neither its content nor its name.
    pub(super) fn is_durable(&self, path: &Path) -> bool {
        let (live, durable) = (self.find(path), self.follow(path, |names| &names.durable));
        let file = live.filter(|_| live == durable).map(|id| &self.nodes[id]);
        matches!(file, Some(Node::File(content)) if content.live == content.durable)
    }

    fn names(&mut self, directory: &Path) -> &mut Names {
        let found = self.find(directory);
        match found.map(|id| &mut self.nodes[id]) {
            Some(Node::Directory(names)) => names,
            _ => panic!("{} was made past the simulation", directory.display()),
        }
    }

    fn content(&mut self, file: Id) -> &mut Content {
        match &mut self.nodes[file] {
            Node::File(content) => content,
            Node::Directory(_) => panic!("a directory is written like a file"),
        }
    }

    fn change(&mut self, path: &Path, change: impl FnOnce(OsString) -> Change) {
        self.changes += 1;
        let number = self.changes;
        let name = path.file_name().expect("the root is never changed").to_owned();
        let names = self.names(path.parent().unwrap_or(Path::new("")));
        let change = change(name);
        change.apply(&mut names.live);
        names.pending.push((number, change));
    }

    fn add(&mut self, path: &Path, node: Node) -> Id {
        let id = self.nodes.len();
        self.nodes.push(node);
        self.change(path, |name| Change::Set(name, id));
        id
    }

    pub(super) fn make_directory(&mut self, path: &Path) {
        self.add(path, Node::Directory(Names::default()));
    }

    /// Registers a file that has been opened and has this length now.
    pub(super) fn open(&mut self, path: &Path, length: u64) -> Id {
        let id = match self.find(path) {
            Some(id) => id,
            None => self.add(path, Node::File(Content::default())),
        };
        if length == 0 && !self.content(id).live.is_empty() {
            self.set_length(id, 0);
        }
        id
    }

    pub(super) fn link(&mut self, from: &Path, to: &Path) {
        let id = self.find(from).expect("what has got another name exists");
        self.change(to, |name| Change::Set(name, id));
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        assert_eq!(from.parent(), to.parent(), "a move between directories is not simulated");
        let id = self.find(from).expect("what was renamed exists");
        let old = from.file_name().expect("the root is never renamed").to_owned();
        self.change(to, |to| Change::Move { from: old, to, id });
    }

    pub(super) fn remove(&mut self, path: &Path) {
        self.change(path, Change::Unset);
    }

    pub(super) fn write(&mut self, file: Id, at: usize, bytes: &[u8]) {
        self.content(file).write(Write::Bytes { at, bytes: bytes.into() });
    }

    pub(super) fn set_length(&mut self, file: Id, length: usize) {
        self.content(file).write(Write::Length(length));
    }

    pub(super) fn sync(&mut self, file: Id) {
        self.content(file).sync();
    }

    pub(super) fn fail_sync(&mut self, file: Id, random: &mut Pcg64) {
        self.content(file).fail_sync(random);
    }

    pub(super) fn sync_directory(&mut self, path: &Path) {
        let names = self.names(path);
        for (_, change) in names.pending.drain(..) {
            change.apply(&mut names.durable);
        }
    }

    /// The power fails: only what is on the medium is left.
    pub(super) fn lose_power(&mut self, random: &mut Pcg64) {
        let (of_names, last) = (Fate::draw(random), below(random, self.changes as usize + 1) as u64);
        for node in &mut self.nodes {
            match node {
                Node::File(content) => content.lose_power(Fate::draw(random), random),
                Node::Directory(names) => {
                    for (number, change) in names.pending.drain(..) {
                        let is_kept = match of_names {
                            Fate::Lost => false,
                            Fate::Kept => true,
                            Fate::Prefix => number <= last,
                            Fate::Any => coin(random),
                        };
                        if is_kept {
                            change.apply(&mut names.durable);
                        }
                    }
                    names.live.clone_from(&names.durable);
                }
            }
        }
    }

    /// Writes the files and directories into an empty directory.
    pub(super) fn write_out(&self, root: &Path) {
        self.write_out_below(ROOT, root, &mut BTreeMap::new());
    }

    /// `made` says where files are that have been written already; they may have more names.
    fn write_out_below(&self, id: Id, path: &Path, made: &mut BTreeMap<Id, PathBuf>) {
        let Node::Directory(names) = &self.nodes[id] else { panic!("it is a directory") };
        for (name, id) in &names.live {
            let path = path.join(name);
            match &self.nodes[*id] {
                Node::File(_) if made.contains_key(id) => {
                    std::fs::hard_link(&made[id], &path).expect("there is room in memory");
                }
                Node::File(content) => {
                    use std::os::unix::fs::PermissionsExt;
                    std::fs::write(&path, &content.live).expect("there is room in memory");
                    let closed = std::fs::Permissions::from_mode(0o600);
                    std::fs::set_permissions(&path, closed).expect("it was just made");
                    made.insert(*id, path);
                }
                Node::Directory(_) => {
                    std::fs::create_dir(&path).expect("there is room in memory");
                    self.write_out_below(*id, &path, made);
                }
            }
        }
    }

    /// Compares what programs should see with what they do see at `root`. Directories called
    /// `untracked` may hold files that the simulation does not know.
    pub(super) fn compare(&self, root: &Path, untracked: &str) -> Result<(), String> {
        self.compare_below(ROOT, root, untracked)
    }

    fn compare_below(&self, id: Id, path: &Path, untracked: &str) -> Result<(), String> {
        let told = |error: std::io::Error| format!("{}: {error}", path.display());
        match &self.nodes[id] {
            Node::File(content) => match std::fs::read(path).map_err(told)? == content.live {
                true => Ok(()),
                false => Err(format!("{} was written past the simulation", path.display())),
            },
            Node::Directory(names) => {
                for (name, id) in &names.live {
                    self.compare_below(*id, &path.join(name), untracked)?;
                }
                for entry in std::fs::read_dir(path).map_err(told)? {
                    let name = entry.map_err(told)?.file_name();
                    if !names.live.contains_key(&name) && !path.ends_with(untracked) {
                        return Err(format!("{} was made past the simulation", path.join(name).display()));
                    }
                }
                Ok(())
            }
        }
    }
}
