//! The mappings of an address space: `/proc/PID/smaps`, line by line (`proc_pid_smaps(5)`).
//!
//! The file is read as a stream, because a process may have 65,000 mappings with 25 lines each.

use std::io::{self, BufRead};

/// One mapping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mapping {
    /// First address.
    pub(super) start: u64,
    /// First address after the mapping.
    pub(super) end: u64,
    /// Resident memory, bytes, without the kernel's zero page. Large pages from the host's pool are
    /// included.
    pub(super) resident: u64,
    /// Whether KSM may merge it.
    pub(super) is_mergeable: bool,
    /// Whether it is memory of a device, or the kernel's own pages that every process sees.
    pub(super) is_special: bool,
}

/// Calls `give` with every mapping in the text.
///
/// # Errors
/// Those of reading; ESRCH if the process ended meanwhile.
pub(super) fn each_mapping(mut smaps: impl BufRead, mut give: impl FnMut(Mapping)) -> io::Result<()> {
    let mut current: Option<Mapping> = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        if smaps.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        // A path may hold any bytes, but the fields searched for are plain text.
        let text = String::from_utf8_lossy(&line);
        if let Some(mapping) = header(&text) {
            current.replace(mapping).into_iter().for_each(&mut give);
        } else if let Some(mapping) = &mut current {
            mapping.learn(&text);
        }
    }
    current.into_iter().for_each(give);
    Ok(())
}

/// Parses a line such as `7f0000000000-7f0000001000 rw-p 00000000 00:00 0      [heap]`.
fn header(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let address = |word| u64::from_str_radix(word, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    let name = words.nth(4).unwrap_or("");
    let is_special = name == "[vdso]" || name == "[vsyscall]" || name.starts_with("[vvar");
    Some(Mapping { start, end, is_special, ..Mapping::default() })
}

impl Mapping {
    fn learn(&mut self, line: &str) {
        // Pages from the pool are not in the first of these.
        let resident = ["Rss:", "Shared_Hugetlb:", "Private_Hugetlb:"];
        if let Some(size) = resident.iter().find_map(|name| line.strip_prefix(name)) {
            let kib = size.split_ascii_whitespace().next().and_then(|word| word.parse::<u64>().ok());
            self.resident += kib.unwrap_or(0) << 10;
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            for flag in flags.split_ascii_whitespace() {
                match flag {
                    "mg" => self.is_mergeable = true,
                    "io" | "pf" => self.is_special = true,
                    _ => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From Linux 6.18, shortened. The second name is one that a path may have.
    const SMAPS: &[u8] = b"55d0a0000000-55d0a0021000 rw-p 00000000 00:00 0                          [heap]
Size:                132 kB
Rss:                  88 kB
VmFlags: rd wr mr mw me ac sd
7f10c0000000-7f10c4000000 rw-p 00000000 00:00 0 /tmp/Rss: \xff VmFlags: pf
Size:              65536 kB
KernelPageSize:        4 kB
Rss:               65536 kB
AnonHugePages:     65536 kB
THPeligible:           1
VmFlags: rd wr mr mw me dc dd hg mg sd
7f10d0000000-7f10d0001000 rw-s 00002000 00:06 1045                       /dev/vfio/7
Rss:                   0 kB
VmFlags: rd wr sh mr mw me ms pf io de dd sd
7ffd3a1f4000-7ffd3a1f8000 r--p 00000000 00:00 0                          [vvar]
Rss:                   0 kB
VmFlags: rd mr de dd
7ffd3a1f8000-7ffd3a1fa000 r--p 00000000 00:00 0                          [vvar_vclock]
VmFlags: rd mr pf io de dd
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
VmFlags: ex
";

    fn mappings(text: &[u8]) -> Vec<Mapping> {
        let mut all = Vec::new();
        each_mapping(text, |mapping| all.push(mapping)).unwrap();
        all
    }

    #[test]
    fn mappings_are_distinguished() {
        let all = mappings(SMAPS);
        assert_eq!(all.len(), 6, "{all:?}");
        let heap = Mapping {
            start: 0x55d0_a000_0000,
            end: 0x55d0_a002_1000,
            resident: 88 << 10,
            is_mergeable: false,
            is_special: false,
        };
        assert_eq!(all[0], heap);
        assert!(all[1].is_mergeable && !all[1].is_special && all[1].resident == 64 << 20, "{:?}", all[1]);
        assert!(all[2..].iter().all(|mapping| mapping.is_special), "{all:?}");
        assert_eq!(all[5].end, 0xffff_ffff_ff60_1000);
        assert_eq!(mappings(b""), []);
    }

    /// Before Linux 6.7 a large mapping without resident memory is taken for a hole.
    #[test]
    fn large_pages_from_the_pool_are_resident() {
        let all = mappings(
            b"7f0000000000-7f0080000000 rw-s 00000000 00:10 4211   /memfd:memory (deleted)
Rss:                   0 kB
Shared_Hugetlb:     4096 kB
Private_Hugetlb:    2048 kB
VmFlags: rd wr sh mr mw me ms de ht sd
",
        );
        assert_eq!(all.iter().map(|mapping| mapping.resident).collect::<Vec<_>>(), [6 << 20]);
    }

    #[test]
    fn this_process_is_read() {
        let file = std::fs::File::open("/proc/self/smaps").unwrap();
        let (mut found, mut special) = (None, 0);
        let here = &raw const found as u64;
        each_mapping(io::BufReader::new(file), |mapping| {
            special += u32::from(mapping.is_special);
            if (mapping.start..mapping.end).contains(&here) {
                found = Some(mapping);
            }
        })
        .unwrap();
        let stack = found.expect("what is on the stack is mapped");
        assert!(stack.resident > 0 && !stack.is_special, "{stack:?}");
        assert!(special > 0, "every process has the kernel's own pages");
    }
}
