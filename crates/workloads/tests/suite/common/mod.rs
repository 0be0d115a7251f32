//! Shared code of the tests of manifests against recorded outputs.

use std::path::Path;
use weigh_model::{HostFacts, WorkloadPlan};
use weigh_workloads::{Ended, ExtractError, Extracted, RawResult, Resources, Size, Workload, extract};

pub fn host() -> HostFacts {
    HostFacts { last_level_cache_bytes: Some(1 << 20), ..HostFacts::default() }
}

/// The plan of a workload with values for its required parameters.
pub fn plan(workload: &Workload, size: Size) -> WorkloadPlan {
    let required = workload.params().iter().filter(|param| param.required.is_some());
    let given = required.map(|param| (param.name.clone(), vec!["/opt/own".into()])).collect();
    workload.plan(size.as_str(), &given, &host()).unwrap().remove(0)
}

/// A file of `testdata/`.
pub fn recorded(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The values extracted from a command with this output and status.
pub fn read(plan: &WorkloadPlan, output: &str, status: i32) -> Result<Extracted, ExtractError> {
    let (status, output) = (Ended::Exited(status), output.as_bytes());
    let resources = Resources { maximum_resident_set_bytes: 1, ..Resources::default() };
    extract(plan, &RawResult { status, output, error: b"", duration_ns: 1, resources })
}
