//! The stages of a virtual machine's start, from timestamps alone.
//!
//! ```text
//! spawn ------ RESUME -------- the kernel's clock starts ---------- the probe's first instruction ------ up
//!   | boot_vmm   | boot_firmware            | boot_kernel                       | boot_user             |
//!   host's clock                            guest's clock                                     host's clock
//! ```
//!
//! The two moments in the middle are known in the guest's clock, which starts at 0 when its kernel
//! sets up its timekeeping. Exchanges with the probe locate this 0 on the host's clock, to within
//! half of the best round trip. The stages on either side of the guest's have this uncertainty; the
//! sum of the three does not.

use crate::clock::{Exchange, ExchangeSeries};

/// The observed timestamps, nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct BootTimestamps {
    /// When the machine began to execute, host's clock; `None` if the platform does not report it.
    pub(super) code_ns: Option<u64>,
    /// The probe's first instruction, guest's clock.
    pub(super) started_ns: u64,
    /// When the guest was up, host's clock.
    pub(super) init_ns: u64,
}

/// The stages that begin or end inside of the guest, nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) firmware_ns: Result<u64, &'static str>,
    pub(super) kernel_ns: u64,
    pub(super) user_ns: Result<u64, &'static str>,
    /// Uncertainty of the boundaries of `firmware_ns` and `user_ns`.
    pub(super) bound_ns: u64,
}

/// Why the firmware's stage is absent if no platform reports its beginning.
pub(super) const NOT_TOLD: &str = "the platform does not say when it let the machine run";
/// Why stages are absent that would end before they began.
const UNSTEADY: &str = "the guest's clock did not keep its pace while it booted";

impl BootTimestamps {
    /// The stages, from the exchanges that were made when the guest was up.
    pub(super) fn parts(self, exchanged: &ExchangeSeries) -> Parts {
        let Exchange { guest_ns, .. } = exchanged.best;
        let bound_ns = exchanged.best.round_trip_ns().div_ceil(2);
        // The guest's 0 on the host's clock. Years in nanoseconds are far from the limits of the
        // type.
        let zero_ns = -i128::from(exchanged.best.offset_ns());
        let between = |from: i128, to: i128| match to - from {
            // An uncertain boundary may seem to lie slightly beyond another one.
            time if time < -i128::from(bound_ns) => Err(UNSTEADY),
            time => Ok(u64::try_from(time.max(0)).unwrap_or(u64::MAX)),
        };
        let read_after_start = guest_ns >= self.started_ns;
        Parts {
            firmware_ns: self.code_ns.ok_or(NOT_TOLD).and_then(|code| between(code.into(), zero_ns)),
            kernel_ns: self.started_ns,
            user_ns: if read_after_start {
                between(zero_ns + i128::from(self.started_ns), self.init_ns.into())
            } else {
                Err(UNSTEADY)
            },
            bound_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// An exchange with a guest whose clock started at this moment of the host's clock.
    fn exchange(zero_ns: u64, asked_ns: u64, there_ns: u64, back_ns: u64) -> ExchangeSeries {
        let guest_ns = asked_ns + there_ns - zero_ns;
        ExchangeSeries::of(&[Exchange { asked_ns, guest_ns, answered_ns: asked_ns + there_ns + back_ns }])
            .unwrap()
    }

    #[test]
    fn the_parts_add_up_and_are_true_to_within_their_bound() {
        let (code_ns, zero_ns, started_ns, init_ns) = (1000 * MS, 1300 * MS, 900 * MS, 2250 * MS);
        let seen = BootTimestamps { code_ns: Some(code_ns), started_ns, init_ns };
        for (there_ns, back_ns) in [(MS, MS), (0, 4 * MS), (4 * MS, 0), (3, 8)] {
            let parts = seen.parts(&exchange(zero_ns, 2260 * MS, there_ns, back_ns));
            let (firmware, user) = (parts.firmware_ns.unwrap(), parts.user_ns.unwrap());
            assert_eq!(firmware + parts.kernel_ns + user, init_ns - code_ns, "{there_ns} {back_ns}");
            assert!(firmware.abs_diff(300 * MS) <= parts.bound_ns, "{firmware} of {there_ns} {back_ns}");
            assert!(user.abs_diff(50 * MS) <= parts.bound_ns, "{user}");
            assert_eq!(parts.bound_ns, (there_ns + back_ns).div_ceil(2));
        }
    }

    #[test]
    fn a_border_within_its_bound_of_another_is_on_it() {
        let seen = BootTimestamps { code_ns: Some(1000 * MS), started_ns: 10 * MS, init_ns: 1100 * MS };
        // The reading is assumed to be in the middle of the exchange. If it is from the beginning,
        // the clock's start comes out too late.
        let parts = seen.parts(&exchange(1000 * MS, 1100 * MS, 0, 4 * MS));
        assert_eq!(parts.firmware_ns, Ok(2 * MS));
        // If it is from the end, the start comes out too early, before the machine's.
        let parts = seen.parts(&exchange(1000 * MS, 1100 * MS, 4 * MS, 0));
        assert_eq!(parts.firmware_ns, Ok(0));
    }

    #[test]
    fn unreported_and_impossible_phases_are_absent() {
        let seen = BootTimestamps { code_ns: None, started_ns: 10 * MS, init_ns: 1100 * MS };
        let parts = seen.parts(&exchange(1000 * MS, 1100 * MS, MS, MS));
        assert_eq!((parts.firmware_ns, parts.user_ns), (Err(NOT_TOLD), Ok(90 * MS)));
        // A clock that gained half a second seems to have started before the machine did.
        let seen = BootTimestamps { code_ns: Some(1000 * MS), ..seen };
        assert_eq!(seen.parts(&exchange(500 * MS, 1100 * MS, MS, MS)).firmware_ns, Err(UNSTEADY));
        // A clock that has been set back since.
        let seen = BootTimestamps { started_ns: 700 * MS, ..seen };
        assert_eq!(seen.parts(&exchange(1000 * MS, 1100 * MS, MS, MS)).user_ns, Err(UNSTEADY));
    }
}
