//! The archive format: "newc", also called SVR4 without checksums.

use std::io::{self, Read, Write};

/// Entries and contents are aligned to multiples of this, bytes.
const ALIGNMENT: u64 = 4;
/// Longest name with its terminating zero; the kernel silently skips longer ones (`PATH_MAX`,
/// init/initramfs.c).
const LONGEST_NAME: usize = 4096;
/// The block size of cpio(1), which complains about a partial block.
const BLOCK: u64 = 512;
/// The name of the last entry.
const TRAILER: &[u8] = b"TRAILER!!!";

/// The header of an entry.
pub(super) struct Header<'a> {
    pub(super) name: &'a [u8],
    pub(super) inode: u32,
    /// Kind and permissions, see inode(7).
    pub(super) mode: u32,
    /// User and group.
    pub(super) owner: (u32, u32),
    pub(super) links: u32,
    /// Seconds since 1970.
    pub(super) modified: u32,
    /// Major and minor number, if the entry is a device.
    pub(super) device: (u32, u32),
    pub(super) size: u64,
}

/// Writes an archive.
pub(super) struct Newc<W> {
    output: W,
    written: u64,
}

impl<W: Write> Newc<W> {
    pub(super) fn new(output: W) -> Self {
        Self { output, written: 0 }
    }

    /// Begins an entry; its content must follow.
    pub(super) fn header(&mut self, header: &Header<'_>) -> io::Result<()> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_string());
        let size = u32::try_from(header.size).map_err(|_| invalid("it is larger than 4 GiB"))?;
        if header.name.len() >= LONGEST_NAME {
            return Err(invalid("its name is too long"));
        }
        let fields = [
            header.inode,
            header.mode,
            header.owner.0,
            header.owner.1,
            header.links,
            header.modified,
            size,
            0, // device that the entry is on
            0,
            header.device.0,
            header.device.1,
            header.name.len() as u32 + 1,
            0, // checksum
        ];
        let mut text = String::from("070701");
        for field in fields {
            text.push_str(&format!("{field:08x}"));
        }
        self.put(text.as_bytes())?;
        self.put(header.name)?;
        self.put(b"\0")?;
        self.pad(ALIGNMENT)
    }

    /// Writes the content of the current entry, `size` bytes.
    pub(super) fn content(&mut self, content: &mut impl Read, size: u64) -> io::Result<()> {
        let copied = io::copy(content, &mut self.output)?;
        self.written += copied;
        if copied != size {
            return Err(io::Error::other("its content is not as long as its header says"));
        }
        self.pad(ALIGNMENT)
    }

    /// Ends the archive.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.header(&Header {
            name: TRAILER,
            inode: 0,
            mode: 0,
            owner: (0, 0),
            links: 1,
            modified: 0,
            device: (0, 0),
            size: 0,
        })?;
        self.pad(BLOCK)?;
        self.output.flush()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.output.write_all(bytes)
    }

    fn pad(&mut self, to: u64) -> io::Result<()> {
        let missing = self.written.next_multiple_of(to) - self.written;
        self.put(&[0; BLOCK as usize][..missing as usize])
    }
}
