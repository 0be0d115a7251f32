use super::*;
use crate::vm::tune::{Requirement, Topology};
use weigh_host::command::{Invocation, find_program};

fn tuning(cpus: &[u32]) -> Tuning {
    Tuning {
        pin: Vec::new(),
        cpus: cpus.to_vec(),
        model: Model::Default,
        topology: Topology::flat(u32::try_from(cpus.len()).unwrap()),
        caches: false,
        hugepages: Requirement::Off,
        iothread: Requirement::Off,
        notes: Vec::new(),
    }
}

fn domain(tuning: &Tuning) -> Domain<'_> {
    Domain {
        name: "weighbridge-run-1",
        acceleration: Acceleration::Tcg,
        machine: "pc",
        emulator: Path::new("/usr/bin/qemu-system-x86_64"),
        memory_bytes: 512 << 20,
        tuning,
        hugepages: false,
        kernel: Path::new("/k/vmlinux"),
        initramfs: Path::new("/w/initramfs"),
        probe_words: "",
        console: Path::new("/logs/a&b.log"),
        channel: Path::new("/w/lv1.sock"),
        share: None,
        card: None,
        disks: &[],
        iothread: false,
        as_root: true,
    }
}

fn files(kind: Share) -> SharedFiles {
    SharedFiles { kind, source: "/w/<it>".into(), tag: "weighbridge" }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_machine_is_a_short_document() {
    let tuning = tuning(&[2, 3]);
    let expected = r#"<domain type="qemu">
  <name>weighbridge-run-1</name>
  <memory unit="KiB">524288</memory>
  <vcpu placement="static">2</vcpu>
  <cputune>
    <vcpupin vcpu="0" cpuset="2,3"/>
    <vcpupin vcpu="1" cpuset="2,3"/>
  </cputune>
  <os>
    <type arch="x86_64" machine="pc">hvm</type>
    <kernel>/k/vmlinux</kernel>
    <initrd>/w/initramfs</initrd>
    <cmdline>console=ttyS0 quiet panic=-1 reboot=t rdinit=/.weighbridge/probe -- --channel port:weighbridge</cmdline>
  </os>
  <features>
    <acpi/>
    <apic/>
  </features>
  <clock offset="utc"/>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>destroy</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type="usb" model="none"/>
    <serial type="file">
      <source path="/logs/a&amp;b.log" append="on"/>
      <target port="0"/>
    </serial>
    <channel type="unix">
      <source mode="bind" path="/w/lv1.sock"/>
      <target type="virtio" name="weighbridge"/>
    </channel>
    <memballoon model="none"/>
  </devices>
  <seclabel type="static" model="dac" relabel="no">
    <label>+0:+0</label>
  </seclabel>
</domain>"#;
    assert_eq!(domain(&tuning).text(), expected);
}

#[test]
fn tuning_is_written_to_the_document() {
    let tuned = Tuning {
        pin: vec![(0, 3), (1, 7)],
        model: Model::Host,
        topology: Topology { sockets: 1, cores: 1, threads: 2 },
        caches: true,
        ..tuning(&[3, 7])
    };
    let kvm = Domain { acceleration: Acceleration::Kvm, hugepages: true, ..domain(&tuned) }.text();
    for part in [
        r#"<domain type="kvm">"#,
        r#"<vcpupin vcpu="0" cpuset="3"/>"#,
        r#"<vcpupin vcpu="1" cpuset="7"/>"#,
        r#"<cpu mode="host-passthrough">"#,
        r#"<topology sockets="1" dies="1" cores="1" threads="2"/>"#,
        r#"<cache mode="passthrough"/>"#,
        "<hugepages/>",
        r#"<source type="memfd"/>"#,
    ] {
        assert!(kvm.contains(part), "{part} in {kvm}");
    }
    // Without KVM no CPU can be passed through, and large pages need not be shared with another
    // process.
    let tcg = domain(&tuned).text();
    assert!(tcg.contains(r#"<cpu mode="maximum">"#) && !tcg.contains("passthrough"), "{tcg}");
    assert!(!kvm.contains("<access") && !tcg.contains("memoryBacking"), "{tcg}");
    let named = Tuning { model: Model::Named("a<b".into()), ..tuning(&[0]) };
    let named = domain(&named).text();
    assert!(named.contains(r#"<model fallback="forbid">a&lt;b</model>"#), "{named}");
}

#[test]
fn shared_files_are_read_only_or_their_daemons() {
    let tuning = tuning(&[0]);
    let text = |share: &SharedFiles| Domain { share: Some(share), ..domain(&tuning) }.text();
    let nine_p = text(&files(Share::NineP));
    assert!(
        nine_p.contains(r#"<source dir="/w/&lt;it&gt;"/>"#) && nine_p.contains("<readonly/>"),
        "{nine_p}"
    );
    assert!(!nine_p.contains("memfd"), "{nine_p}");
    let virtiofs = text(&files(Share::Virtiofs));
    assert!(virtiofs.contains(r#"<source socket="/w/&lt;it&gt;"/>"#), "{virtiofs}");
    assert!(virtiofs.contains(r#"<access mode="shared"/>"#), "{virtiofs}");
}

fn card(vhost: Option<bool>) -> Card {
    Card { tap: "wb1".into(), hardware_address: "52:54:00:00:00:01".into(), vhost }
}

fn disks() -> [Disk; 2] {
    let file = Disk {
        path: "/w/a&b".into(),
        is_device: false,
        format: "qcow2",
        bytes: None,
        cache: "none".into(),
        aio: "native".into(),
    };
    let device = Disk { is_device: true, format: "raw", bytes: Some(4096), ..file.clone() };
    [device, Disk { cache: "writeback".into(), aio: "threads".into(), ..file }]
}

#[test]
fn cards_are_taps_of_ours() {
    let tuning = tuning(&[0]);
    let text = |vhost| {
        let card = card(vhost);
        Domain { card: Some(&card), ..domain(&tuning) }.text()
    };
    let auto = text(None);
    assert!(auto.contains(r#"<target dev="wb1" managed="no"/>"#), "{auto}");
    assert!(auto.contains(r#"<mac address="52:54:00:00:00:01"/>"#) && !auto.contains("<driver"), "{auto}");
    assert!(text(Some(true)).contains(r#"<driver name="vhost"/>"#));
    assert!(text(Some(false)).contains(r#"<driver name="qemu"/>"#));
}

#[test]
fn disks_come_in_order() {
    let tuning = tuning(&[0]);
    let text = |iothread| Domain { disks: &disks(), iothread, ..domain(&tuning) }.text();
    let plain = text(false);
    let place = |part: &str| plain.find(part).unwrap_or_else(|| panic!("{part} in {plain}"));
    assert!(place(r#"<target dev="vda" bus="virtio"/>"#) < place(r#"<target dev="vdb" bus="virtio"/>"#));
    assert!(place(r#"<source dev="/w/a&amp;b">"#) < place(r#"<source file="/w/a&amp;b"/>"#));
    place(r#"<slice type="storage" offset="0" size="4096"/>"#);
    place(r#"<driver name="qemu" type="raw" cache="none" io="native"/>"#);
    place(r#"<driver name="qemu" type="qcow2" cache="writeback" io="threads"/>"#);
    let threaded = text(true);
    assert!(threaded.contains("<iothreads>1</iothreads>"), "{threaded}");
    assert_eq!(threaded.matches(r#" iothread="1"/>"#).count(), 2, "{threaded}");
}

/// Every combination of a document's options is valid by libvirt's own schema.
#[test]
fn documents_are_in_the_schema() {
    let schema = Path::new("/usr/share/libvirt/schemas/domain.rng");
    if find_program("xmllint").is_none() || !schema.exists() {
        let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
        assert!(
            !required.split(',').any(|word| word == "libvirt"),
            "xmllint and libvirt's schemas are required"
        );
        eprintln!("SKIPPED documents_are_in_the_schema: xmllint or libvirt's schemas are not installed");
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let models = [Model::Default, Model::Host, Model::Named("qemu64".into()), Model::Named("max".into())];
    let topologies = [Topology::flat(2), Topology { sockets: 1, cores: 2, threads: 1 }];
    let mut documents = Vec::new();
    for (model, topology) in models.iter().flat_map(|model| topologies.map(|topology| (model, topology))) {
        for bits in 0..32_u32 {
            let is = |bit: u32| bits & (1 << bit) != 0;
            let pin = if is(0) { vec![(0, 0), (1, 1)] } else { Vec::new() };
            let tuning = Tuning { pin, model: model.clone(), topology, caches: is(1), ..tuning(&[0, 1]) };
            let share = [None, Some(files(Share::NineP)), Some(files(Share::Virtiofs))];
            for share in &share {
                // Options that exclude nothing else are varied along with the others.
                let (card, disks) = (card([None, Some(true), Some(false)][documents.len() % 3]), disks());
                let acceleration = if is(2) { Acceleration::Kvm } else { Acceleration::Tcg };
                let (hugepages, as_root) = (is(3), is(4));
                let it = Domain {
                    acceleration,
                    hugepages,
                    as_root,
                    share: share.as_ref(),
                    card: is(0).then_some(&card),
                    disks: if is(1) { &disks } else { &[] },
                    iothread: is(1) && is(3),
                    ..domain(&tuning)
                };
                let path = base.path().join(format!("{}.xml", documents.len()));
                std::fs::write(&path, it.text()).unwrap();
                documents.push(path);
            }
        }
    }
    assert_eq!(documents.len(), 8 * 32 * 3);
    let check = |documents: &[PathBuf]| {
        Invocation::new("xmllint").args(["--noout", "--relaxng"]).arg(schema).args(documents).run_ok()
    };
    check(&documents).unwrap();
    // An invalid document is refused.
    let wrong = base.path().join("wrong.xml");
    std::fs::write(&wrong, domain(&tuning(&[0])).text().replace("memballoon", "balloon")).unwrap();
    check(&[wrong]).unwrap_err();
}
