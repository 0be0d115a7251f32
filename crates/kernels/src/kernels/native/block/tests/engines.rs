//! Every way to keep requests in flight, and what is reported when one is missing.

use super::*;

/// The engines that are available on this kernel.
fn engines() -> Vec<&'static str> {
    let mut engines = vec!["threads"];
    match uring::open(8) {
        Ok(_) => engines.push("io_uring"),
        Err(why) => eprintln!("SKIPPED io_uring: {why}"),
    }
    engines
}

#[test]
fn every_engine_keeps_its_requests_in_flight() {
    let (_folder, path) = disk(1 << 20);
    for engine in engines() {
        for mix in ["read", "write", "mixed"] {
            for pattern in ["random", "sequential"] {
                let line = format!(
                    "--direct off --engine {engine} --mix {mix} --pattern {pattern} --depth 8 --operations 2000"
                );
                let outcome = read(&path, &line).unwrap();
                assert!(outcome.check.passed, "{line}: {:?}", outcome.check);
                assert_eq!(outcome.facts["engine"], engine);
                assert_eq!(outcome.facts["load"], "closed loop, 8 requests in flight");
                assert_eq!(outcome.histograms[0].1.len(), 2000, "{line}");
                // Requests before the clock starts, and those in flight when it stops, come on top:
                // while one thread waits for a CPU the others complete many, and one request can
                // then outlast the whole window.
                assert!(outcome.operations > 2000, "{line}: {}", outcome.operations);
                assert!(outcome.facts["in_flight_mean"].as_f64().unwrap() > 0.0, "{line}");
            }
        }
    }
}

#[test]
fn time_ends_a_run() {
    let (_folder, path) = disk(1 << 20);
    for engine in engines() {
        let line = format!("--direct off --engine {engine} --depth 2 --seconds 1 --operations 1");
        let outcome = read(&path, &line).unwrap();
        let measured = outcome.histograms[0].1.len() as f64;
        assert!(measured > 1.0, "{line}");
        assert!((outcome.value("rate").unwrap() - measured).abs() < 1e-6 * measured, "one second long");
    }
}

#[test]
fn sequential_requests_go_round() {
    let (_folder, path) = disk(64 << 10);
    let disk = disk::open(&path, CACHED).unwrap();
    let window = Window::new(0, End::Operations(1));
    let job = Job::new(&disk, (16 << 10, 2), (Mix::Read, true), window, 1).unwrap();
    let mut random = job.random(0);
    let places: Vec<u64> = (0..6).map(|slot| job.next(&mut random, slot % 2).place >> 10).collect();
    assert_eq!(places, [0, 16, 32, 48, 0, 16]);
}

#[test]
fn a_mix_has_70_percent_reads_and_separates_them_from_writes() {
    let (_folder, path) = nothing();
    let outcome =
        read(&path, "--file-bytes 1MiB --direct off --mix mixed --operations 20000 --seed 5").unwrap();
    let length = |name: &str| {
        outcome.histograms.iter().find(|(known, _)| known == name).map(|(_, histogram)| histogram.len())
    };
    let reads = length("read_latency").unwrap();
    assert_eq!(length("latency").unwrap(), reads + length("write_latency").unwrap());
    assert!((13_600..14_400).contains(&reads), "{reads} of 20000");
    let rates = outcome.value("read_rate").unwrap() + outcome.value("write_rate").unwrap();
    assert!((rates / outcome.value("rate").unwrap() - 1.0).abs() < 1e-9);
    assert!(outcome.value("write_latency_p99").unwrap() > 0.0);
}

#[test]
fn an_engine_that_cannot_be_is_refused() {
    let (_folder, path) = disk(64 << 10);
    let message = |line: &str| read(&path, line).unwrap_err().to_string();
    assert!(message("--engine pread --depth 2").contains("one request in flight"));
    assert!(message("--depth 4096").contains("the most is 1024"));
    assert!(message("--depth 9 --direct off").contains("it needs at least 72KiB"));
    assert!(message("--bytes 2GiB").contains("1GiB at most"));
}

/// Forbids this thread to set up a ring from now on, as a container's filter does.
fn forbid_io_uring(error: i32) {
    let load_number = libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 };
    let is_setup = libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_io_uring_setup as u32 };
    let give = |k| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k };
    let mut filter =
        [load_number, is_setup, give(libc::SECCOMP_RET_ERRNO | error as u32), give(libc::SECCOMP_RET_ALLOW)];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the first call takes only numbers. The program that the second one reads lives until
    // the call returns, and it changes only which calls this thread may make.
    let results = unsafe {
        [
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program),
        ]
    };
    assert_eq!(results, [0, 0], "{}", std::io::Error::last_os_error());
}

#[test]
fn threads_replace_a_missing_io_uring_with_a_warning() {
    let (_folder, path) = disk(64 << 10);
    for (error, said) in [(libc::EPERM, "forbidden here"), (libc::ENOSYS, "this kernel has no io_uring")] {
        let path = path.clone();
        // A filter affects the thread that sets it, and the threads that this one starts.
        let alone = std::thread::spawn(move || {
            forbid_io_uring(error);
            (
                read(&path, "--direct off --depth 4 --operations 400").unwrap(),
                read(&path, "--direct off --depth 1 --operations 400").unwrap(),
                ["io_uring", "by-depth"].map(|engine| {
                    read(&path, &format!("--direct off --depth 4 --engine {engine}")).unwrap_err().to_string()
                }),
            )
        });
        let (deep, single, refused) = alone.join().unwrap();
        assert!(deep.check.passed && deep.facts["engine"] == "threads", "{:?}", deep.facts);
        let warning = deep.warnings.iter().find(|warning| warning.contains(said));
        assert!(warning.unwrap().ends_with("4 threads with one request each instead"), "{:?}", deep.warnings);
        assert_eq!(single.facts["engine"], "pread");
        assert!(single.warnings.iter().all(|warning| !warning.contains("io_uring")), "nothing is missing");
        for refused in refused {
            assert!(refused.contains(said) && refused.contains("`--engine threads`"), "{refused}");
        }
    }
}
