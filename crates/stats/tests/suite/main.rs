//! The statistics through their public interface.

mod analysis;
mod build;
mod circumstances;
mod collecting;
mod degenerate;
mod golden;
mod looks;
mod pool;
mod prohibitions;
mod properties;
mod quantiles;
mod records;
mod reference;
mod runs;
mod simulation;
mod steadiness;
mod stopping;
