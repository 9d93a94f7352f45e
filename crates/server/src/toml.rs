//! TOML files that people write: read, or refused on one line.

use serde::de::DeserializeOwned;

/// The TOML crate calls itself for each bracket and for each dot of a key; thousands of them would overflow the stack,
/// which ends the process. No file of ours is deeper than three.
const MOST_DEPTH: usize = 32;

/// Reads a file's text.
///
/// # Errors
/// What is wrong with it, on one line.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    if depth(text) > MOST_DEPTH {
        return Err(format!("it is nested deeper than {MOST_DEPTH} levels"));
    }
    basic_toml::from_str(text)
        .map_err(|error| error.to_string().split_whitespace().collect::<Vec<_>>().join(" "))
}

/// How deep a text is nested, or deeper where it has brackets in strings or comments.
fn depth(text: &str) -> usize {
    let mut open = 0_usize;
    let brackets = text.bytes().map(|byte| {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        open
    });
    let deepest = brackets.max().unwrap_or(0);
    let dots = |key: &str| key.bytes().filter(|byte| *byte == b'.').count();
    // Up to a sign of equality or a comma, a line may be a key.
    let keys = text.split(['=', ',', '\n']);
    deepest.max(keys.map(dots).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_file_is_read_or_refused_on_one_line() {
        let value: Value = read("a.b = [{ c = 0.5 }]\n[d.e]\nf = 'x'\n").unwrap();
        assert_eq!(value["a"]["b"][0]["c"], 0.5);
        assert_eq!(value["d"]["e"]["f"], "x");
        for text in ["a", "a = ", "a = 1\na = 2", "[a\n", "a = \"\n\""] {
            let error = read::<Value>(text).unwrap_err();
            assert!(!error.is_empty() && !error.contains('\n'), "{error}");
        }
    }

    /// Without the limit each of these overflows the stack.
    #[test]
    fn a_file_without_end_of_nesting_is_refused() {
        let many = 200_000;
        for text in [
            format!("a = {}", "[".repeat(many)),
            format!("a = {}", "{a=".repeat(many)),
            format!("{}a = 1", "a.".repeat(many)),
            format!("[{}a]", "a.".repeat(many)),
            format!("a = {{ b = 1, {}c = 1 }}", "a.".repeat(many)),
        ] {
            assert_eq!(read::<Value>(&text).unwrap_err(), "it is nested deeper than 32 levels");
        }
    }
}
