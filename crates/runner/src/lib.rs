//! From a plan to samples: blocks, trials, their order, and when to stop.

pub mod order;
