//! A machine's actual properties, read from QEMU's monitor, from the host's kernel and from inside
//! the guest, rather than taken from what was asked for.
//!
//! The keys are parity keys that begin with `machine:`.

use super::tune::Topology;
use crate::helpers::allowed_cpus;
use crate::{Session, SessionError};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::parse_cpu_list;

/// How much of a file of the guest's kernel is read, bytes.
const FILE_BYTES: u64 = 4096;

/// Why QEMU's monitor did not answer a question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MonitorError(pub(crate) String);

/// Runs a command of QEMU's monitor.
pub(crate) type Monitor<'a> = &'a mut dyn FnMut(&str, Value) -> Result<Value, MonitorError>;

/// Turns an answer into the text of a fact.
pub(crate) fn or_unknown(answer: Result<String, MonitorError>) -> String {
    answer.unwrap_or_else(|why| format!("not known: {why}"))
}

/// A CPU of the guest, as QEMU reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GuestCpu {
    pub(crate) index: u32,
    /// The host thread that runs it.
    pub(crate) thread: u32,
    /// Path of the QEMU object that has its model.
    pub(crate) path: String,
    /// Its socket, core and thread.
    place: [u64; 3],
}

/// The CPUs in an answer to `query-cpus-fast`, in their order.
pub(crate) fn cpus(answer: &Value) -> Vec<GuestCpu> {
    let number = |cpu: &Value, name: &str| cpu.get(name)?.as_u64().and_then(|n| u32::try_from(n).ok());
    let of = |cpu: &Value| {
        let place = |name: &str| cpu.get("props").and_then(|props| props.get(name)?.as_u64()).unwrap_or(0);
        Some(GuestCpu {
            index: number(cpu, "cpu-index")?,
            thread: number(cpu, "thread-id")?,
            path: cpu.get("qom-path").and_then(Value::as_str).unwrap_or_default().into(),
            place: [place("socket-id"), place("core-id"), place("thread-id")],
        })
    };
    let mut cpus: Vec<GuestCpu> =
        answer.as_array().map(Vec::as_slice).unwrap_or_default().iter().filter_map(of).collect();
    cpus.sort_by_key(|cpu| cpu.index);
    cpus
}

/// The topology of QEMU's CPUs; `None` if they do not form a grid.
pub(crate) fn topology(cpus: &[GuestCpu]) -> Option<Topology> {
    let places = cpus.iter().map(|cpu| cpu.place);
    grid(places.map(|[socket, core, thread]| (socket, (socket, core), thread)).collect())
}

/// The topology from every CPU's socket, core and thread.
fn grid(places: Vec<(u64, (u64, u64), u64)>) -> Option<Topology> {
    let count = |number: usize| u32::try_from(number).ok();
    let sockets: BTreeSet<_> = places.iter().map(|place| place.0).collect();
    let cores: BTreeSet<_> = places.iter().map(|place| place.1).collect();
    if sockets.is_empty()
        || !cores.len().is_multiple_of(sockets.len())
        || !places.len().is_multiple_of(cores.len())
    {
        return None;
    }
    Some(Topology {
        sockets: count(sockets.len())?,
        cores: count(cores.len() / sockets.len())?,
        threads: count(places.len() / cores.len())?,
    })
}

/// The model of a CPU, by QEMU's name.
///
/// # Errors
/// QEMU does not answer or names no model.
pub(crate) fn model(monitor: Monitor<'_>, cpu: &GuestCpu) -> Result<String, MonitorError> {
    let mut get = |property: &str| monitor("qom-get", json!({"path": cpu.path, "property": property}));
    let kind = get("type")?;
    let kind = kind.as_str().ok_or_else(|| MonitorError("QEMU does not name a model".into()))?;
    // As in `max-x86_64-cpu`.
    let suffix = kind.rfind("-cpu").and_then(|end| kind[..end].rfind('-'));
    Ok(kind[..suffix.unwrap_or(kind.len())].into())
}

/// Where threads may run, in words: `pinned: 0 on 2, 1 on 3`, or `free on 0-1`.
pub(crate) fn placement(process: u32, threads: &[u32]) -> String {
    let allowed = |thread: &u32| allowed_cpus(process, *thread);
    placement_in_words(&threads.iter().map(allowed).collect::<Vec<_>>())
}

fn placement_in_words(lists: &[Option<String>]) -> String {
    let Some(lists) = lists.iter().cloned().collect::<Option<Vec<String>>>() else {
        return "not known: a thread is gone".into();
    };
    let different: BTreeSet<&String> = lists.iter().collect();
    let single = |list: &String| parse_cpu_list(list).is_ok_and(|cpus| cpus.len() == 1);
    match lists.first() {
        None => "no CPUs".into(),
        Some(_) if different.len() == lists.len() && lists.iter().all(single) => {
            let pairs = lists.iter().enumerate().map(|(guest, host)| format!("{guest} on {host}"));
            format!("pinned: {}", pairs.collect::<Vec<_>>().join(", "))
        }
        Some(list) if different.len() == 1 => format!("free on {list}"),
        Some(_) => {
            let each = lists.iter().enumerate().map(|(guest, list)| format!("{guest} free on {list}"));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

/// The pages that back a guest's memory in a process, in words. `bytes` is the size of that memory.
pub(crate) fn pages(process: u32, bytes: u64) -> String {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let smaps = read(format!("/proc/{process}/smaps"));
    let setting = |file: &str| {
        let text = read(format!("/sys/kernel/mm/transparent_hugepage/{file}"));
        text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word.to_string())
    };
    pages_in_words(&smaps, bytes, setting("enabled").as_deref(), setting("shmem_enabled").as_deref())
}

/// The same from proc_pid_smaps(5) and the host's settings of transparent huge pages, for private
/// memory and for memory files.
fn pages_in_words(smaps: &str, bytes: u64, private: Option<&str>, file: Option<&str>) -> String {
    let (mut header, mut sizes) = ("", BTreeMap::new());
    let mut best: Option<(u64, &str, u64, bool)> = None;
    for line in smaps.lines() {
        match line.split_once(':') {
            Some((name, value)) if !name.contains(' ') && !name.contains('-') => {
                let kib = || value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok();
                if let Some(kib) = kib() {
                    sizes.insert(name, kib << 10);
                }
                if name == "VmFlags" {
                    let size = sizes.get("Size").copied().unwrap_or(0);
                    let advised = value.split_whitespace().any(|flag| flag == "hg");
                    let page = sizes.get("KernelPageSize").copied().unwrap_or(0);
                    if best.is_none_or(|best| size > best.0) {
                        best = Some((size, header, page, advised));
                    }
                }
            }
            _ => (header, sizes) = (line, BTreeMap::new()),
        }
    }
    // The guest's memory is one mapping, or several if the kernel had to split it.
    let Some((size, header, page, advised)) = best.filter(|best| best.0 >= bytes / 2) else {
        return "not known: the guest's memory is not among the process's mappings".into();
    };
    let unit = if page >= 1 << 20 { format!("{} MiB", page >> 20) } else { format!("{} KiB", page >> 10) };
    let is_file = header.contains("/memfd:") || header.contains("/dev/shm/");
    let transparent = match if is_file { file } else { private } {
        Some("always" | "within_size" | "force") => true,
        Some("madvise" | "advise") => advised,
        _ => false,
    };
    let part = if size < bytes { " for most of it" } else { "" };
    match page {
        _ if page > 64 << 10 => format!("{unit}, reserved{part}"),
        _ if transparent => format!("{unit}, huge where the host's kernel finds them{part}"),
        _ => format!("{unit}{part}"),
    }
}

/// What the guest sees of its CPUs: sockets, cores, threads, and the first CPU's caches.
///
/// # Errors
/// The connection to the guest is lost.
pub(crate) fn seen_inside(
    session: &mut Session,
    cpus: &[u32],
) -> Result<(Option<Topology>, String), SessionError> {
    let mut read = |path: String| match session.get(&path, FILE_BYTES) {
        Ok(content) => Ok(Some(String::from_utf8_lossy(&content).trim().to_string())),
        Err(SessionError::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
    };
    const CPUS: &str = "/sys/devices/system/cpu";
    let mut places = Vec::new();
    for cpu in cpus {
        let mut number = |file: &str| -> Result<Option<u64>, SessionError> {
            let text = read(format!("{CPUS}/cpu{cpu}/topology/{file}"))?;
            Ok(text.and_then(|text| text.parse().ok()))
        };
        if let (Some(socket), Some(core)) = (number("physical_package_id")?, number("core_id")?) {
            places.push((socket, (socket, core), u64::from(*cpu)));
        }
    }
    let whole = places.len() == cpus.len();
    let mut caches = Vec::new();
    for index in 0.. {
        let mut file = |name: &str| read(format!("{CPUS}/cpu0/cache/index{index}/{name}"));
        let (Some(level), Some(kind), size) = (file("level")?, file("type")?, file("size")?) else { break };
        let shared =
            file("shared_cpu_list")?.and_then(|list| parse_cpu_list(&list).ok()).map_or(1, |list| list.len());
        let kind = match kind.as_str() {
            "Data" => "d",
            "Instruction" => "i",
            _ => "",
        };
        let among = if shared > 1 { format!(" for {shared} CPUs") } else { String::new() };
        caches.push(format!("L{level}{kind} {}{among}", size.unwrap_or_else(|| "of unknown size".into())));
    }
    let caches = if caches.is_empty() { "no caches".into() } else { caches.join(", ") };
    Ok((grid(places).filter(|_| whole), caches))
}

/// The VMM's threads for disks, by name.
///
/// # Errors
/// QEMU does not answer.
pub(crate) fn iothreads(monitor: Monitor<'_>) -> Result<String, MonitorError> {
    let answer = monitor("query-iothreads", json!({}))?;
    let threads = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<&str> = threads.iter().filter_map(|thread| thread.get("id")?.as_str()).collect();
    Ok(if names.is_empty() { "none".into() } else { names.join(", ") })
}

/// Whether the host's kernel may merge pages of the guest's memory with equal ones.
///
/// # Errors
/// QEMU does not answer.
pub(crate) fn is_mergeable(monitor: Monitor<'_>) -> Result<bool, MonitorError> {
    let answer = monitor("query-memdev", json!({}))?;
    let memories = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(memories.iter().any(|memory| memory.get("merge").and_then(Value::as_bool) == Some(true)))
}

/// The devices that were named on the command line, by type: `VGA, usb-tablet`.
///
/// # Errors
/// QEMU does not answer.
pub(crate) fn devices(monitor: Monitor<'_>) -> Result<String, MonitorError> {
    let mut all = Vec::new();
    for place in ["/machine/peripheral", "/machine/peripheral-anon"] {
        let answer = monitor("qom-list", json!({"path": place}))?;
        let children = answer.as_array().cloned().unwrap_or_default();
        let kinds = children.iter().filter_map(|child| {
            let kind = child.get("type")?.as_str()?;
            Some(kind.strip_prefix("child<")?.strip_suffix('>')?.to_string())
        });
        all.extend(kinds);
    }
    all.sort();
    Ok(if all.is_empty() { "none".into() } else { all.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_come_in_their_order_with_their_places() {
        let cpu = |index: u32, core: u32| {
            json!({"cpu-index": index, "thread-id": 70 + index, "qom-path": format!("/machine/c{index}"), "target": "x86_64",
                   "props": {"socket-id": 0, "core-id": core, "thread-id": 0}})
        };
        let known = cpus(&json!([cpu(1, 1), cpu(0, 0), {"thread-id": 99}]));
        assert_eq!(known.iter().map(|cpu| cpu.thread).collect::<Vec<_>>(), [70, 71]);
        assert_eq!(topology(&known).unwrap().to_string(), "1x2x1");
        let threads = cpus(&json!([cpu(0, 0), {"cpu-index": 1, "thread-id": 1, "props": {"thread-id": 1}}]));
        assert_eq!(topology(&threads).unwrap().to_string(), "1x1x2");
        assert_eq!(topology(&cpus(&json!([cpu(0, 0), cpu(1, 1), cpu(2, 1)]))), None);
        assert_eq!(topology(&cpus(&json!({}))), None);
    }

    #[test]
    fn models_are_identified_by_their_types() {
        let say = |kind: &'static str| {
            let mut monitor = move |_: &str, _: Value| Ok(json!(kind));
            model(&mut monitor, &cpus(&json!([{"cpu-index": 0, "thread-id": 1}]))[0]).unwrap()
        };
        assert_eq!(say("qemu64-x86_64-cpu"), "qemu64");
        assert_eq!(say("Skylake-Client-v2-x86_64-cpu"), "Skylake-Client-v2");
        assert_eq!(say("cortex-a57-arm-cpu"), "cortex-a57");
    }

    #[test]
    fn placement_has_its_words() {
        let words = |lists: &[&str]| {
            placement_in_words(&lists.iter().map(|list| Some((*list).into())).collect::<Vec<_>>())
        };
        assert_eq!(words(&["2", "3"]), "pinned: 0 on 2, 1 on 3");
        assert_eq!(words(&["4"]), "pinned: 0 on 4");
        assert_eq!(words(&["0-1", "0-1"]), "free on 0-1");
        // Two CPUs on one host CPU do not count as pinned.
        assert_eq!(words(&["1", "1"]), "free on 1");
        assert_eq!(words(&["0", "0-1"]), "0 free on 0, 1 free on 0-1");
        assert_eq!(placement_in_words(&[Some("0".into()), None]), "not known: a thread is gone");
        let own = std::process::id();
        assert!(!placement(own, &[own]).contains("not known"));
    }

    fn smaps(page_kib: u64, name: &str, flags: &str) -> String {
        format!(
            "55d0-55d1 r-xp 00000000 08:01 1 /usr/bin/qemu\nSize:                  8 kB\nKernelPageSize:        4 kB\nVmFlags: rd ex\n\
             7f00-7f20 rw-p 00000000 00:00 0 {name}\nSize:             262144 kB\nKernelPageSize:     {page_kib} kB\nAnonHugePages:      0 kB\n\
             ProtectionKey:         0\nVmFlags: rd wr {flags}\n"
        )
    }

    #[test]
    fn pages_are_read_off_the_largest_mapping() {
        let words = |page, name, flags, private, file| {
            pages_in_words(&smaps(page, name, flags), 256 << 20, Some(private), Some(file))
        };
        assert_eq!(words(4, "", "hg", "madvise", "never"), "4 KiB, huge where the host's kernel finds them");
        assert_eq!(words(4, "", "", "madvise", "never"), "4 KiB");
        assert_eq!(words(4, "", "hg", "never", "always"), "4 KiB");
        assert_eq!(words(4, "/memfd:memory (deleted)", "hg", "always", "never"), "4 KiB");
        assert_eq!(words(2048, "/memfd:memory (deleted)", "ht", "always", "never"), "2 MiB, reserved");
        assert!(pages_in_words(&smaps(4, "", ""), 1 << 30, None, None).starts_with("not known"));
        assert!(pages_in_words("", 1, None, None).starts_with("not known"));
    }

    #[test]
    fn devices_that_the_monitor_lists_are_named() {
        let mut monitor = |command: &str, arguments: Value| match (command, arguments["path"].as_str()) {
            ("qom-list", Some("/machine/peripheral")) => Ok(
                json!([{"name": "type", "type": "string"}, {"name": "b", "type": "child<virtio-balloon-pci>"}]),
            ),
            ("qom-list", _) => Ok(json!([{"name": "device[0]", "type": "child<VGA>"}])),
            ("query-iothreads", _) => Ok(json!([{"id": "disk", "thread-id": 4}])),
            ("query-memdev", _) => Ok(json!([{"id": "memory", "merge": false}])),
            _ => Err(MonitorError("no such command".into())),
        };
        assert_eq!(devices(&mut monitor).unwrap(), "VGA, virtio-balloon-pci");
        assert_eq!(iothreads(&mut monitor).unwrap(), "disk");
        assert_eq!(is_mergeable(&mut monitor), Ok(false));
    }
}
