use super::*;

fn refused(text: &str) -> (String, String) {
    let error = crate::resolve(&EnvironmentSpec::parse(text).unwrap()).err().unwrap();
    (error.text[error.span].to_string(), error.help.unwrap_or_default())
}

#[test]
fn daemons_of_others_are_refused() {
    for uri in
        ["xen:///system", "qemu+ssh://elsewhere/system", "qemu://elsewhere/system", "system", "lxc:///"]
    {
        let (word, help) = refused(&format!("libvirt:uri={uri}"));
        assert!(word == uri && help.contains("qemu:///system"), "{uri}: {word}: {help}");
    }
    for uri in ["qemu:///system", "qemu:///session", "qemu+unix:///system?socket=/run/a.sock"] {
        let spec = EnvironmentSpec::parse(&format!("libvirt:uri={uri}")).unwrap();
        let (platform, environment) = crate::resolve(&spec).unwrap();
        assert!(!platform.capabilities(&environment).needs_root);
    }
}

#[test]
fn keys_of_tuning_are_checked() {
    assert_eq!(refused("libvirt:topology=ring").0, "ring");
    assert_eq!(refused("libvirt:tune=custom").0, "custom");
}

#[test]
fn a_ledger_starts_no_program() {
    for uri in [
        "qemu+ext:///system?command=/tmp/evil",
        "qemu+unix:///system?socket=/run/a&command=/tmp/evil",
        "qemu+ssh://elsewhere/system?netcat=/tmp/evil",
        "",
    ] {
        let detail = serde_json::json!({"uri": uri, "document": "/d"});
        let error = Libvirt.undo("domain", "weighbridge-x", &detail).unwrap_err().to_string();
        assert!(error.contains("may start a program"), "{uri}: {error}");
    }
}

#[test]
fn nothing_but_domains_is_undone() {
    let error = Libvirt.undo("network", "default", &serde_json::Value::Null).unwrap_err();
    assert!(error.to_string().contains("never makes a network"), "{error}");
}
