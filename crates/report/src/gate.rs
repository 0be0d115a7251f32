//! What a gate lets through.

use weigh_stats::Cell;

/// Whether a cell crosses a gate: its metric is a primary one and the whole interval of its
/// overhead lies above so many per cent. An interval that holds the gate does not cross it: noise
/// alone fails nobody's build.
pub fn beyond(cell: &Cell, percent: f64) -> bool {
    cell.primary && cell.overhead.is_some_and(|overhead| overhead.low * 100.0 > percent)
}
