//! Writes samples for use in other programs.

use std::io::{self, Write};
use weigh_model::{Better, Comparison};

/// Writes one row per observation, with the columns that [`crate::import`] and `weigh analyse`
/// read: `environment`, `workload`, `metric`, `unit`, `better`, `value`, and `block` where the
/// observations have one.
///
/// Numbers are written with as many digits as it takes to read the same number back.
///
/// # Errors
/// Errors of the writer; [`io::ErrorKind::InvalidInput`] when some observations have a block and
/// others have none.
pub fn samples_csv(comparisons: &[Comparison], out: impl Write) -> io::Result<()> {
    let observations = || comparisons.iter().flat_map(|c| &c.series).flat_map(|s| &s.observations);
    let paired = observations().any(|observation| observation.block.is_some());
    if paired && observations().any(|observation| observation.block.is_none()) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "some observations have a block and others have none",
        ));
    }
    let mut writer = csv::Writer::from_writer(out);
    let mut columns = vec!["environment", "workload", "metric", "unit", "better", "value"];
    columns.extend(paired.then_some("block"));
    writer.write_record(&columns)?;
    for comparison in comparisons {
        let better = match comparison.metric.better {
            Better::Lower => "lower",
            Better::Higher => "higher",
        };
        for series in &comparison.series {
            for observation in &series.observations {
                let value = observation.value.to_string();
                let block = observation.block.map(|block| block.to_string());
                let row = [
                    series.environment.as_str(),
                    &comparison.workload,
                    &comparison.metric.name,
                    comparison.metric.unit.symbol(),
                    better,
                    &value,
                ];
                writer.write_record(row.into_iter().chain(block.as_deref()))?;
            }
        }
    }
    writer.flush()
}
