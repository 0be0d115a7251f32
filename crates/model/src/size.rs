//! Sizes, durations and CPU lists as people write them.

use std::time::Duration;

/// A size, duration or CPU list that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {what} `{text}`: {problem}")]
pub struct SizeError {
    /// What was expected: "size", "duration" or "CPU list".
    pub what: &'static str,
    /// What was written.
    pub text: String,
    /// What is wrong with it, and the correct spelling.
    pub problem: String,
}

fn split_number<'a>(what: &'static str, text: &'a str, example: &str) -> Result<(f64, &'a str), SizeError> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().map_err(|_| SizeError {
        what,
        text: text.into(),
        problem: format!("it must start with a number, as in `{example}`"),
    })?;
    Ok((number, text[end..].trim()))
}

/// Reads a number of bytes: `4096`, `64KiB`, `512M`, `2GB`. `K`, `M`, `G`, `T` alone are binary, as
/// tools of this field take them.
///
/// # Errors
/// The text is no number, or has another unit.
pub fn parse_bytes(text: &str) -> Result<u64, SizeError> {
    let (number, suffix) = split_number("size", text, "512MiB")?;
    let factor: f64 = match suffix {
        "" | "B" => 1.0,
        "k" | "K" | "KiB" => 1024.0,
        "M" | "MiB" => 1024f64.powi(2),
        "G" | "GiB" => 1024f64.powi(3),
        "T" | "TiB" => 1024f64.powi(4),
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        other => {
            return Err(SizeError {
                what: "size",
                text: text.into(),
                problem: format!("`{other}` is not a unit; use KiB, MiB, GiB or kB, MB, GB"),
            });
        }
    };
    Ok((number * factor).round() as u64)
}

/// Writes a number of bytes with the largest binary unit that divides it exactly: `64KiB`, `3GiB`,
/// `1000B`.
pub fn format_bytes(bytes: u64) -> String {
    for (unit, size) in [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= size && bytes.is_multiple_of(size) {
            return format!("{}{unit}", bytes / size);
        }
    }
    format!("{bytes}B")
}

/// Reads a duration: `250ms`, `90`, `90s`, `10m`, `2h`, `1d`. A bare number is seconds.
///
/// # Errors
/// The text is no number, or has another unit; the duration is too long.
pub fn parse_duration(text: &str) -> Result<Duration, SizeError> {
    let (number, suffix) = split_number("duration", text, "10m")?;
    let seconds = match suffix {
        "ms" => number / 1e3,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86_400.0,
        other => {
            return Err(SizeError {
                what: "duration",
                text: text.into(),
                problem: format!("`{other}` is not a unit; use ms, s, m, h or d"),
            });
        }
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| SizeError {
        what: "duration",
        text: text.into(),
        problem: "it is too long".into(),
    })
}

/// Reads a kernel-style CPU list, `0-3,8`, into sorted CPU numbers without repetition.
///
/// # Errors
/// The text is no such list.
pub fn parse_cpu_list(text: &str) -> Result<Vec<u32>, SizeError> {
    let wrong = |problem: String| SizeError { what: "CPU list", text: text.into(), problem };
    let number = |part: &str| {
        part.trim()
            .parse::<u32>()
            .map_err(|_| wrong(format!("`{part}` is not a CPU number; write it as in `0-3,8`")))
    };
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        match part.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last || last - first > 65_535 {
                    return Err(wrong(format!("the range `{part}` runs backwards or is too long")));
                }
                cpus.extend(first..=last);
            }
            None => cpus.push(number(part)?),
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("64KiB").unwrap(), 65_536);
        assert_eq!(parse_bytes("1.5G").unwrap(), 1_610_612_736);
        assert_eq!(parse_bytes("2GB").unwrap(), 2_000_000_000);
        assert!(parse_bytes("12 parsecs").unwrap_err().to_string().contains("parsecs"));
        assert!(parse_bytes("big").is_err());
        assert_eq!(format_bytes(65_536), "64KiB");
        assert_eq!(format_bytes(1000), "1000B");
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("10m").unwrap(), Duration::from_secs(600));
        assert_eq!(parse_duration("250ms").unwrap(), Duration::from_millis(250));
        assert!(parse_duration("10 fortnights").is_err());
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0-2,8,1\n").unwrap(), [0, 1, 2, 8]);
        assert!(parse_cpu_list("3-1").is_err());
        assert!(parse_cpu_list("a").is_err());
    }
}
