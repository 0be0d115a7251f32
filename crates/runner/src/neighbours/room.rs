//! How many guests the memory of the host has room for.

use super::watch::too_little;
use crate::start::footprint::could_fill;
use crate::start::guest_pool::GuestPool;

/// The memory of the host, and how much of it must stay free.
pub(super) struct Room {
    pub(super) available: fn() -> Option<u64>,
    pub(super) floor: u64,
}

impl Room {
    /// Why no more guests may be started, if memory is short.
    pub(super) fn shortage(&self, up: u32) -> Option<String> {
        let available = (self.available)().filter(|available| *available < self.floor)?;
        Some(too_little(available, self.floor, up))
    }

    /// How many guests there is room for if each fills its memory, and why not for more.
    pub(super) fn most(&self, guest_pool: &GuestPool, others: u32) -> (u32, Option<String>) {
        let sized = guest_pool.recipe.request.memory_bytes.filter(|_| guest_pool.recipe.can.sized_memory);
        let (Some(each), Some(available)) = (sized, (self.available)()) else { return (others, None) };
        room_for(others, each, available, self.floor)
    }
}

/// How many guests of `each` bytes there is room for, and why not for more.
fn room_for(others: u32, each: u64, available: u64, floor: u64) -> (u32, Option<String>) {
    let fit = u32::try_from(available.saturating_sub(floor) / each.max(1)).unwrap_or(u32::MAX);
    if fit >= others {
        return (others, None);
    }
    let all = u64::from(others).saturating_mul(each);
    (fit, Some(could_fill(&format!("{others} more guests"), each, all, available, floor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_number_of_machines_leaves_the_host_its_memory() {
        assert_eq!(room_for(3, GIB, 8 * GIB, GIB), (3, None));
        let (fit, reason) = room_for(3, 4 * GIB, 10 * GIB, GIB);
        assert_eq!(fit, 2);
        let reason = reason.unwrap();
        assert!(
            reason.contains("3 more guests of 4GiB could fill 12GiB") && reason.contains("keeps 1GiB"),
            "{reason}"
        );
        assert_eq!(room_for(2, 4 * GIB, GIB, 2 * GIB).0, 0);
    }
}
