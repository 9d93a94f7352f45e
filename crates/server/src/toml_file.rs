//! TOML files that people write.

use serde::de::DeserializeOwned;

/// Reads a file's text. What is nested without end is refused too: the `toml` crate has a limit of its own.
///
/// # Errors
/// What is wrong with it and where, on one line.
pub fn read_toml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|mut error| {
        // Without the text, the error names the key instead of drawing the place.
        error.set_input(None);
        let said = one_line(&error);
        let before = text.bytes().take(error.span().map_or(0, |span| span.start));
        format!("{said} at line {}", before.filter(|byte| *byte == b'\n').count() + 1)
    })
}

/// An error's words without line breaks and control characters, which a key may have.
pub(super) fn one_line(error: &toml::de::Error) -> String {
    let said = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    said.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use serde_json::Value;

    #[test]
    fn a_file_is_read_or_refused_on_one_line() {
        let value: Value = read_toml("a.b = [{ c = 0.5 }]\n[d.e]\nf = 'x'\n").unwrap();
        assert_eq!(value["a"]["b"][0]["c"], 0.5);
        assert_eq!(value["d"]["e"]["f"], "x");
        for text in ["a = 1\nb", "a = 1\nb = ", "a = 1\na = 2", "a = 1\n[b\n", "b = 1\na = \"\n\""] {
            let error = read_toml::<Value>(text).unwrap_err();
            assert!(error.contains(" at line ") && !error.contains('\n'), "{error}");
        }
        let error = read_toml::<BTreeMap<String, BTreeMap<String, u8>>>("\n[a]\nb = 'x'\n").unwrap_err();
        assert!(error.ends_with(" in `a.b` at line 3"), "{error}");
    }

    /// A parser without a limit overflows the stack, which ends the process.
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
            let error = read_toml::<Value>(&text).unwrap_err();
            assert!(error.contains("recurs"), "{error}");
        }
    }
}
