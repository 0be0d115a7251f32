//! The configuration of one container, `lxc.container.conf(5)`.

use super::Plan;
use super::groups::Groups;
use super::rootfs::Rootfs;
use crate::link::Network;
use crate::privileges::OF_DOCKER;
use std::path::Path;

/// How many users of the host a mapped container has.
pub(super) const MAPPED_USERS: u32 = 65536;

/// What the configuration of one container depends on.
pub(super) struct Config<'a> {
    pub(super) plan: &'a Plan,
    pub(super) rootfs: &'a Rootfs,
    pub(super) groups: &'a Groups,
    pub(super) network: Network<'a>,
    /// Where a system's console goes.
    pub(super) console: &'a Path,
}

impl Config<'_> {
    /// The text of the file.
    pub(super) fn text(&self) -> String {
        let mut lines = Vec::new();
        let mut set = |key: &str, value: &str| lines.push(format!("lxc.{key} = {value}"));
        let plan = self.plan;
        let include = |name: &str| plan.programs.share.join(name).display().to_string();
        set("include", &include("common.conf"));
        if let Some(first) = plan.mapped {
            set("include", &include("userns.conf"));
            set("idmap", &format!("u 0 {first} {MAPPED_USERS}"));
            set("idmap", &format!("g 0 {first} {MAPPED_USERS}"));
        }
        if !plan.system {
            // LXC's default leaves root the right to mount, and so to take off what covers files of
            // the host. LXC refuses a configuration that both drops and keeps.
            let keep: Vec<_> = OF_DOCKER.iter_names().map(|(name, _)| name.to_lowercase()).collect();
            set("cap.drop", "");
            set("cap.keep", &keep.join(" "));
        }
        // A container that does not own its network namespace cannot have a sysfs for it.
        let own_network = matches!(self.network, Network::Empty | Network::Link { .. });
        let foreign_network = plan.mapped.is_some() && !own_network;
        let sys = if foreign_network { "" } else { " sys:mixed" };
        let groups = if plan.system { " cgroup:mixed" } else { "" };
        set("mount.auto", "");
        set("mount.auto", &format!("proc:mixed{sys}{groups}"));
        if foreign_network {
            set("mount.entry", "/sys sys none rbind,ro 0 0");
        }
        set("uts.name", "weighbridge");
        if plan.system {
            set("console.logfile", &self.console.display().to_string());
            // LXC starts the file anew beyond that.
            set("console.size", "16MB");
            set("init.cmd", "/sbin/init");
        } else {
            set("console.path", "none");
            set("tty.max", "0");
        }
        set("rootfs.path", &self.rootfs.path);
        if !self.rootfs.options.is_empty() {
            set("rootfs.options", &self.rootfs.options.join(","));
        }
        for entry in &self.rootfs.entries {
            set("mount.entry", entry);
        }
        match &self.network {
            Network::Namespace(file) => set("namespace.share.net", &file.display().to_string()),
            // In LXC, this type means the host's network.
            Network::Host => set("net.0.type", "none"),
            Network::Empty => {
                set("net.0.type", "empty");
                set("net.0.flags", "up");
            }
            Network::Link { name, bridge, address, gateway } => {
                set("net.0.type", "veth");
                set("net.0.link", bridge);
                set("net.0.veth.pair", name);
                set("net.0.name", "eth0");
                set("net.0.flags", "up");
                set("net.0.ipv4.address", &format!("{address}/{}", weigh_network::PREFIX_BITS));
                set("net.0.ipv4.gateway", &gateway.to_string());
            }
        }
        if !plan.seccomp {
            set("seccomp.profile", "");
        }
        for (key, value) in self.groups.configuration() {
            set(key, &value);
        }
        lines.push(String::new());
        lines.join("\n")
    }
}
