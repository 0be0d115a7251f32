//! The fakes refuse what no monitor accepts, so that a driver with wrong requests fails.

use super::fake_monitor::description::{Description, check_request};
use super::fake_monitor::{self, Asked, Fake, cloud_hypervisor::CloudHypervisor, firecracker::Firecracker};
use super::{KINDS, Place};
use serde_json::{Value, json};

/// Requests and answers that are not in the descriptions.
#[test]
fn requests_and_bodies_not_in_the_descriptions_are_refused() {
    let [.., firecracker] = fake_monitor::firecracker::DESCRIPTIONS.map(Description::parse);
    let ask = |method: &str, path: &str, body: Option<Value>| {
        firecracker.request(method, path).and_then(|known| firecracker.check_body(&known, body.as_ref()))
    };
    ask("PUT", "/vsock", Some(json!({"guest_cid": 3, "uds_path": "v"}))).unwrap();
    ask("PUT", "/drives/a", Some(json!({"drive_id": "a", "is_root_device": false}))).unwrap();
    ask("GET", "/version", None).unwrap();
    for (method, path, body, word) in [
        ("PUT", "/vsocks", None, "there is no /vsocks"),
        ("PUT", "/drives/", None, "there is no /drives/"),
        ("POST", "/vsock", None, "takes PUT and not POST"),
        ("GET", "/version", Some(json!({})), "takes no body"),
        ("PUT", "/vsock", None, "it takes a Vsock"),
        ("PUT", "/vsock", Some(json!([])), "not an object"),
        ("PUT", "/vsock", Some(json!({"uds_path": "v"})), "has no \"guest_cid\""),
        ("PUT", "/vsock", Some(json!({"guest_cid": 2, "uds_path": "v"})), "Vsock.guest_cid is 2"),
        ("PUT", "/vsock", Some(json!({"guest_cid": 3.5, "uds_path": "v"})), "Vsock.guest_cid is 3.5"),
        ("PUT", "/vsock", Some(json!({"guest_cid": 3, "uds_path": 1})), "not string"),
        ("PUT", "/vsock", Some(json!({"guest_cid": 3, "uds_path": "v", "port": 1})), "knows no \"port\""),
        ("PUT", "/actions", Some(json!({"action_type": "Start"})), "InstanceStart"),
        ("PUT", "/machine-config", Some(json!({"vcpu_count": 33, "mem_size_mib": 1})), "1..32"),
        ("PUT", "/machine-config", Some(json!({"vcpu_count": 1, "mem_size_mib": "1"})), "not integer"),
        (
            "PUT",
            "/machine-config",
            Some(json!({"vcpu_count": 1, "mem_size_mib": 1, "smt": 0})),
            "not boolean",
        ),
        ("PUT", "/drives/a", Some(json!({"drive_id": "b", "is_root_device": true})), "in the path"),
        (
            "PUT",
            "/snapshot/load",
            Some(json!({"snapshot_path": "s", "mem_backend": {"backend_path": "m"}})),
            "has no \"backend_type\"",
        ),
        (
            "PUT",
            "/snapshot/load",
            Some(json!({"snapshot_path": "s", "network_overrides": [{"iface_id": "a"}]})),
            "network_overrides[0] has no",
        ),
    ] {
        let refused = ask(method, path, body.clone()).unwrap_err();
        assert!(refused.contains(word), "{method} {path} {body:?}: {refused}");
    }
    let [.., other] = fake_monitor::cloud_hypervisor::DESCRIPTIONS.map(Description::parse);
    let ask = |method: &str, path: &str, body: Option<Value>| {
        other.request(method, path).and_then(|known| other.check_body(&known, body.as_ref()))
    };
    ask("PUT", "/api/v1/vm.create", Some(json!({"payload": {"kernel": "k"}, "disks": [{"path": "d"}]})))
        .unwrap();
    ask("PUT", "/api/v1/vm.boot", None).unwrap();
    for (method, path, body, word) in [
        ("PUT", "/vm.create", json!({"payload": {}}), "not below /api/v1"),
        ("PUT", "/api/v1/vm.create", json!({}), "has no \"payload\""),
        (
            "PUT",
            "/api/v1/vm.create",
            json!({"payload": {}, "disks": [{"file": "d"}]}),
            "disks[0] knows no \"file\"",
        ),
        (
            "PUT",
            "/api/v1/vm.create",
            json!({"payload": {}, "serial": {"mode": "file"}}),
            "serial.mode is \"file\"",
        ),
        (
            "PUT",
            "/api/v1/vm.create",
            json!({"payload": {}, "cpus": {"boot_vcpus": 0, "max_vcpus": 1}}),
            "boot_vcpus is 0",
        ),
        (
            "PUT",
            "/api/v1/vm.create",
            json!({"payload": {}, "cpus": {"boot_vcpus": 1}}),
            "has no \"max_vcpus\"",
        ),
        ("PUT", "/api/v1/vm.boot", json!({}), "takes no body"),
        ("PUT", "/api/v1/vm.restore", json!({"destination_url": "file:///a"}), "has no \"source_url\""),
    ] {
        let refused = ask(method, path, Some(body.clone())).unwrap_err();
        assert!(refused.contains(word), "{method} {path} {body}: {refused}");
    }
    let known = firecracker.request("GET", "/version").unwrap();
    firecracker.check_answer(&known, 200, Some(&json!({"firecracker_version": "1"}))).unwrap();
    for (status, body) in
        [(204, None), (200, None), (200, Some(json!({}))), (200, Some(json!({"version": "1"})))]
    {
        firecracker.check_answer(&known, status, body.as_ref()).unwrap_err();
    }
    for head in [
        "GET /version",
        "GET /version HTTP/1.0",
        "GET version HTTP/1.1",
        "PUT / HTTP/1.1\r\nContent-Length: 2",
        "PUT / HTTP/1.1\r\nContent-Length: x",
        "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked",
        "PUT / HTTP/1.1\r\nCookie: a",
        "GET / HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2",
    ] {
        fake_monitor::http::parse(head).unwrap_err();
    }
}

/// Requests and fields that only the last release has: the drivers support the first as well.
#[test]
fn requests_are_in_the_descriptions_of_all_releases() {
    let firecracker = fake_monitor::firecracker::DESCRIPTIONS.map(Description::parse);
    let other = fake_monitor::cloud_hypervisor::DESCRIPTIONS.map(Description::parse);
    firecracker.iter().chain(&other).for_each(Description::assert_whole);
    let ask = |releases: &[Description], path: &str, body: Value| {
        check_request(releases, &Asked { method: "PUT".into(), path: path.into(), body: Some(body) })
    };
    for (releases, path, body, said) in [
        (&firecracker, "/serial", json!({"serial_out_path": "s"}), "v1.8.0: there is no /serial"),
        (
            &firecracker,
            "/snapshot/load",
            json!({"snapshot_path": "s", "network_overrides": []}),
            "v1.8.0: SnapshotLoadParams knows no \"network_overrides\"",
        ),
        (
            &other,
            "/api/v1/vm.restore",
            json!({"source_url": "file:///a", "resume": true}),
            "v50.2: RestoreConfig knows no \"resume\"",
        ),
    ] {
        ask(&releases[1..], path, body.clone()).unwrap();
        let refused = ask(releases, path, body).unwrap_err();
        assert!(refused.contains(said), "{refused}");
    }
}

/// Requests that are well-formed, at the wrong time.
#[test]
fn fakes_refuse_the_wrong_order() {
    let base = tempfile::tempdir().unwrap();
    let place = Place::new(&KINDS[0], "");
    let settings = place.program.settings("firecracker", "");
    let arguments = ["--id", "a", "--api-sock", "s"].map(String::from);
    let (mut fake, _) = Firecracker::new(&arguments).unwrap();
    let mut ask = |method: &str, path: &str, body: Value| {
        let asked = Asked { method: method.into(), path: path.into(), body: Some(body) };
        fake.act(&asked, &settings)
    };
    let start = json!({"action_type": "InstanceStart"});
    let snapshot = json!({"snapshot_path": base.path().join("s"), "mem_file_path": base.path().join("m")});
    for (method, path, body, word) in [
        ("PUT", "/actions", start.clone(), "no boot source"),
        ("PATCH", "/vm", json!({"state": "Paused"}), "does not run"),
        ("PUT", "/snapshot/create", snapshot, "not paused"),
        ("PUT", "/boot-source", json!({"kernel_image_path": "/no/such/kernel"}), "/no/such/kernel"),
        ("PUT", "/boot-source", json!({"kernel_image_path": "/etc/hostname"}), "not uncompressed"),
        ("PUT", "/machine-config", json!({"vcpu_count": 3, "mem_size_mib": 9, "smt": true}), "1 or even"),
        (
            "PUT",
            "/machine-config",
            json!({"vcpu_count": 1, "mem_size_mib": 9, "huge_pages": "2M"}),
            "even number",
        ),
    ] {
        let (status, said) = ask(method, path, body);
        let said = said.unwrap_or_default().to_string();
        assert!(status == 400 && said.contains(word), "{method} {path}: {status} {said}");
    }
    assert_eq!(ask("PUT", "/machine-config", json!({"vcpu_count": 1, "mem_size_mib": 9})).0, 204);
    let load = json!({"snapshot_path": "s", "mem_backend": {"backend_type": "File", "backend_path": "m"}});
    let (status, said) = ask("PUT", "/snapshot/load", load);
    assert!(status == 400 && said.unwrap().to_string().contains("fresh monitor"));
    for wrong in [
        ["--api-sock", "s", "--id", "a"],
        ["--id", "a_b", "--api-sock", "s"],
        ["--id", "", "--api-sock", "s"],
    ] {
        assert!(Firecracker::new(&wrong.map(String::from)).is_err(), "{wrong:?}");
    }
    let (mut fake, _) = CloudHypervisor::new(&["--api-socket", "s"].map(String::from)).unwrap();
    let mut ask = |action: &str, body: Value| {
        let asked = Asked { method: "PUT".into(), path: format!("/api/v1/{action}"), body: Some(body) };
        fake.act(&asked, &settings)
    };
    let kernel = place.base.path().join("vmlinux-6.1.0-fake");
    let payload = json!({"kernel": kernel, "initramfs": kernel, "cmdline": ""});
    for (action, body, status) in [
        ("vm.boot", Value::Null, 404),
        ("vm.pause", Value::Null, 404),
        ("vm.snapshot", json!({"destination_url": "file:///tmp"}), 404),
        ("vm.create", json!({"payload": {"kernel": "/no/such", "initramfs": kernel}}), 500),
        ("vm.create", json!({"payload": payload, "memory": {"size": 5000}}), 500),
        ("vm.create", json!({"payload": payload, "memory": {"size": 4096}}), 204),
        ("vm.create", json!({"payload": payload, "memory": {"size": 4096}}), 500),
        ("vm.pause", Value::Null, 405),
        ("vm.resume", Value::Null, 405),
        ("vm.snapshot", json!({"destination_url": "file:///tmp"}), 405),
        ("vm.restore", json!({"source_url": "file:///tmp"}), 404),
        // A machine without a channel: its command line has nothing for the probe.
        ("vm.boot", Value::Null, 500),
    ] {
        assert_eq!(ask(action, body.clone()).0, status, "{action} {body}");
    }
    for wrong in [["--api-socket", "path=s"], ["--api-sock", "s"]] {
        assert!(CloudHypervisor::new(&wrong.map(String::from)).is_err(), "{wrong:?}");
    }
}
