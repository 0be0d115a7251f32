//! Names musl's C library at the end of the link. Only Rust's standard library, which the probe is
//! built without, asks for it; named in the source it would come before the libraries that need it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "musl") {
        println!("cargo::rustc-link-arg-bins=-lc");
    }
}
