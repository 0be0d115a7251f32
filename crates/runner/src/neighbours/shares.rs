//! Shares of CPU time: weights and quotas of the control groups of a guest and its neighbours.

use crate::trial::Failure;
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::{CpuShare, ShareBefore};
use weigh_model::{FailureKind, Neighbours, Shares};

/// Whether a group of the measured guest has another parent than one of its neighbours: the kernel
/// does not compare their weights.
fn are_apart(measured: &Accounts, neighbours: &[Accounts]) -> bool {
    let mut groups = neighbours.iter().flat_map(|accounts| &accounts.groups);
    groups.any(|group| measured.groups.iter().any(|own| !own.is_sibling_of(group)))
}

/// Writes weights or quotas to the control groups of all guests, and returns what they were.
///
/// # Errors
/// Why they would not bind the guests. Nothing stays written.
pub(super) fn share_out(
    wanted: &Neighbours,
    cpus: usize,
    measured: &Accounts,
    neighbours: &[Accounts],
) -> Result<Vec<ShareBefore>, Failure> {
    let refused =
        |why: String| Failure::new(FailureKind::Preparation, format!("CPU time cannot be shared out: {why}"));
    let (own, others) = match wanted.shares {
        Shares::Equal => return Ok(Vec::new()),
        Shares::Weights => (CpuShare::Weight(Shares::WEIGHT), None),
        Shares::Limits => {
            let part = cpus as f64 / f64::from(wanted.guests.max(1));
            (CpuShare::Quota(part), Some(CpuShare::Quota(part)))
        }
    };
    let mut before = Vec::new();
    let whose = std::iter::once((measured, Some(own)));
    for (accounts, share) in whose.chain(neighbours.iter().map(|accounts| (accounts, others))) {
        if !accounts.are_all_in_groups() {
            return Err(refused("a guest has no control group of its own that holds it".into()));
        }
        for group in share.iter().flat_map(|_| &accounts.groups) {
            let set = share.map(|share| group.set_share(share)).transpose();
            before.extend(set.map_err(|error| refused(error.to_string()))?);
        }
    }
    if wanted.shares == Shares::Weights && are_apart(measured, neighbours) {
        return Err(refused(
            "the control groups of the guest and of its neighbours have different parents, so that \
             their weights are not compared; use --shares limits"
                .into(),
        ));
    }
    Ok(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_host::cgroup::CgroupView;
    use weigh_model::Load;

    /// Podman and the kubelet make a group of its own around the group of each container.
    #[test]
    fn groups_with_parents_of_their_own_are_apart() {
        let of = |path: &str| {
            let v1 = vec![(vec!["cpu".into()], path.into())];
            Accounts::of_group(CgroupView { v1, ..CgroupView::default() })
        };
        let measured = of("/cpu/run/runc-0");
        assert!(!are_apart(&measured, &[of("/cpu/run/runc-1"), of("/cpu/run/runc-2")]));
        assert!(are_apart(&measured, &[of("/cpu/run/runc-1"), of("/cpu/docker/3")]));
        assert!(are_apart(&of("/cpu/run/podman-0/a"), &[of("/cpu/run/podman-1/b")]));
    }

    /// A user's libvirt daemon keeps QEMU out of the group that weighbridge made for its guest.
    #[test]
    fn a_group_without_its_guest_gets_no_share() {
        let group = tempfile::tempdir().unwrap();
        let shares = group.path().join("cpu.shares");
        std::fs::write(&shares, "1024").unwrap();
        let v1 = vec![(vec!["cpu".into()], group.path().into())];
        let inside = Accounts::of_group(CgroupView { v1, ..CgroupView::default() });
        let outside = Accounts { processes: vec![7], ..inside.clone() };
        let wanted = Neighbours {
            guests: 2,
            load: Load::Idle,
            shares: Shares::Weights,
            environment: None,
            stay: false,
        };
        let of =
            |measured, neighbour: &Accounts| share_out(&wanted, 1, measured, std::slice::from_ref(neighbour));
        let set = of(&inside, &inside).unwrap();
        assert_eq!(std::fs::read_to_string(&shares).unwrap(), "10240");
        drop(set);
        for (measured, neighbour) in [(&outside, &inside), (&inside, &outside)] {
            let reason = of(measured, neighbour).unwrap_err().reason;
            assert!(reason.contains("no control group of its own"), "{reason}");
            assert_eq!(std::fs::read_to_string(&shares).unwrap(), "1024");
        }
    }
}
