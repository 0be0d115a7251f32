//! The content of script elements, and the policy that lets exactly that run.

use crate::ReportError;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use liblzma::read::XzDecoder;
use serde::Serialize;
use std::io::Read as _;
use std::sync::LazyLock;

/// The script of the page.
pub(crate) static SCRIPT: LazyLock<String> =
    LazyLock::new(|| unpack(include_bytes!(concat!(env!("OUT_DIR"), "/page.js.xz"))));
/// The style of the page.
pub(crate) static STYLE: LazyLock<String> =
    LazyLock::new(|| unpack(include_bytes!(concat!(env!("OUT_DIR"), "/page.css.xz"))));

/// The plotting library, compressed with gzip and encoded in base64. The script of the page unpacks
/// it when the first plot scrolls into view.
pub(crate) static LIBRARY: LazyLock<String> =
    LazyLock::new(|| BASE64_STANDARD.encode(include_bytes!(concat!(env!("OUT_DIR"), "/plotly.js.gz"))));

/// Unpacks a text that the build script compressed with xz, which is a quarter smaller than the
/// formats that browsers unpack.
fn unpack(packed: &[u8]) -> String {
    let mut text = String::new();
    XzDecoder::new(packed).read_to_string(&mut text).expect("the build script packed the text");
    text
}

/// The policy of a page: nothing is fetched, and only the two scripts with these digests run,
/// whatever a name or an output contains.
pub(crate) const POLICY: &str = concat!(
    "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; script-src '",
    include_str!(concat!(env!("OUT_DIR"), "/page.js.sha256")),
    "' '",
    include_str!(concat!(env!("OUT_DIR"), "/plotly.js.sha256")),
    "'"
);

/// Data as JSON for a script element: nothing in it can end the element or begin a comment, and it
/// has no line break that scripts know but JSON does not.
pub(crate) fn data(value: &impl Serialize) -> Result<String, ReportError> {
    let json = serde_json::to_string(value)?;
    let mut out = String::with_capacity(json.len() + json.len() / 64);
    for c in json.chars() {
        match c {
            // These occur only inside strings, where an escape means the same.
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            _ => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_scripts_stay_inside_of_their_elements() {
        assert!(!SCRIPT.to_lowercase().contains("</script") && !SCRIPT.contains("<!--"));
        let library = &*LIBRARY;
        assert!(library.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b)));
        assert!(library.len() < 3_000_000, "packed, the library is {} bytes", library.len());
        assert_eq!(POLICY.matches("'sha256-").count(), 2);
    }

    proptest! {
        #[test]
        fn no_text_leaves_its_element(text in "\\PC*(</script>|<!--|]]>|&lt;|\u{2028}|\u{0}|\"|\\\\)\\PC*") {
            let json = data(&[&text]).unwrap();
            prop_assert!(!json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']), "{}", json);
            let back: Vec<String> = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(&back[0], &text);
        }
    }
}
