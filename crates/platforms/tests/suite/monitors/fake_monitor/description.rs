//! A published description of an API, in the reduced form that the script `describe` beside this file
//! makes of it, and what it says about a request.

use super::Asked;
use serde_json::{Map, Value};

/// The description of one release of a monitor.
pub struct Description {
    whole: Value,
}

/// What a description says about a request.
pub struct DescribedRequest<'a> {
    request: &'a Value,
    /// Names and values of the path's `{...}`.
    pub names: Vec<(String, String)>,
}

impl DescribedRequest<'_> {
    /// The body of an answer with this status; nothing if no such answer is described.
    fn answer(&self, status: u16) -> Option<&Value> {
        let answers = &self.request["answers"];
        answers.get(status.to_string()).or_else(|| answers.get("default"))
    }

    /// Whether there is such an answer.
    pub fn has_answer(&self, status: u16) -> bool {
        self.answer(status).is_some()
    }
}

/// Checks that every one of these releases takes a request.
pub fn check_request(releases: &[Description], asked: &Asked) -> Result<(), String> {
    releases.iter().try_for_each(|release| {
        let known = release.request(&asked.method, &asked.path);
        known
            .and_then(|known| release.check_body(&known, asked.body.as_ref()))
            .map_err(|reason| format!("{}: {reason}", release.name()))
    })
}

impl Description {
    pub fn parse(text: &str) -> Self {
        Self { whole: serde_json::from_str(text).unwrap() }
    }

    /// Finds a request by its method and path.
    pub fn request(&self, method: &str, path: &str) -> Result<DescribedRequest<'_>, String> {
        let base = self.whole["base"].as_str().unwrap();
        let below = path.strip_prefix(base).ok_or_else(|| format!("{path} is not below {base}"))?;
        let requests = self.whole["requests"].as_object().unwrap();
        let mut other = Vec::new();
        for (known, request) in requests {
            let (known_method, pattern) = known.split_once(' ').unwrap();
            let Some(names) = matches(pattern, below) else { continue };
            if known_method == method {
                return Ok(DescribedRequest { request, names });
            }
            other.push(known_method);
        }
        match other.is_empty() {
            true => Err(format!("there is no {path}")),
            false => Err(format!("{path} takes {} and not {method}", other.join(", "))),
        }
    }

    /// Checks a request's body.
    pub fn check_body(&self, known: &DescribedRequest<'_>, body: Option<&Value>) -> Result<(), String> {
        match (known.request.get("body"), body) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err("it takes no body".into()),
            (Some(kind), None) if known.request["required"] == true => {
                Err(format!("it takes a {}", place(kind)))
            }
            (Some(_), None) => Ok(()),
            (Some(kind), Some(body)) => {
                self.check(kind, body, place(kind))?;
                // A name in the path must be repeated in the body.
                known.names.iter().try_for_each(|(name, value)| match body.get(name) {
                    Some(said) if said.as_str() != Some(value) => {
                        Err(format!("{name} is {said} in the body and `{value}` in the path"))
                    }
                    _ => Ok(()),
                })
            }
        }
    }

    /// Checks that the description has an answer of this status with this body.
    pub fn check_answer(
        &self,
        known: &DescribedRequest<'_>,
        status: u16,
        body: Option<&Value>,
    ) -> Result<(), String> {
        let Some(kind) = known.answer(status) else {
            return Err(format!("there is no answer {status}"));
        };
        match (kind, body) {
            (Value::Null, None) => Ok(()),
            (Value::Null, Some(_)) => Err(format!("answer {status} has no body")),
            (kind, None) => Err(format!("answer {status} is a {}", place(kind))),
            (kind, Some(body)) => self.check(kind, body, place(kind)),
        }
    }

    fn check(&self, kind: &Value, value: &Value, place: &str) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{place} is {value} and not {what}"));
        if let Some(word) = kind.as_str() {
            let right = match word {
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "integer" => value.is_i64() || value.is_u64(),
                "number" => value.is_number(),
                "object" => value.is_object(),
                other => panic!("the description has a `{other}`"),
            };
            return if right { Ok(()) } else { wrong(word) };
        }
        let (form, of) =
            kind.as_object().and_then(|map| map.iter().find(|(form, _)| *form != "required")).unwrap();
        match form.as_str() {
            "type" => self.check(self.type_of(of), value, place),
            "enum" if of.as_array().unwrap().contains(value) => Ok(()),
            "enum" => wrong(&of.to_string()),
            "integer" if is_within(of, whole(value)) => Ok(()),
            "integer" => wrong(&format!("a whole number of {}", bounds(of))),
            "length" if is_within(of, value.as_str().map(|text| text.len() as i128)) => Ok(()),
            "length" => wrong(&format!("a text of {} bytes", bounds(of))),
            "list" => {
                let Some(items) = value.as_array() else { return wrong("a list") };
                items
                    .iter()
                    .enumerate()
                    .try_for_each(|(at, item)| self.check(of, item, &format!("{place}[{at}]")))
            }
            "map" => {
                let Some(object) = value.as_object() else { return wrong("an object") };
                object.iter().try_for_each(|(name, value)| self.check(of, value, &format!("{place}.{name}")))
            }
            "fields" => {
                let Some(object) = value.as_object() else { return wrong("an object") };
                self.check_object(kind, of.as_object().unwrap(), object, place)
            }
            other => panic!("the description has a `{other}`"),
        }
    }

    fn check_object(
        &self,
        kind: &Value,
        fields: &Map<String, Value>,
        object: &Map<String, Value>,
        place: &str,
    ) -> Result<(), String> {
        for needed in kind.get("required").and_then(Value::as_array).into_iter().flatten() {
            if !object.contains_key(needed.as_str().unwrap()) {
                return Err(format!("{place} has no {needed}"));
            }
        }
        object.iter().try_for_each(|(name, value)| match fields.get(name) {
            Some(kind) => self.check(kind, value, &format!("{place}.{name}")),
            None => Err(format!("{place} knows no \"{name}\"")),
        })
    }

    fn type_of(&self, name: &Value) -> &Value {
        let name = name.as_str().unwrap();
        self.whole["types"].get(name).unwrap_or_else(|| panic!("{} has no type {name}", self.name()))
    }

    /// The release.
    fn name(&self) -> &str {
        self.whole["release"].as_str().unwrap()
    }

    /// Asserts that every type that is named exists, so that no check is empty.
    pub fn assert_whole(&self) {
        fn names<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
            match value {
                // A field may have the name `type`; its kind is no name of a type.
                Value::Object(map) => {
                    found.extend(map.get("type").filter(|_| map.len() == 1));
                    map.values().for_each(|value| names(value, found));
                }
                Value::Array(items) => items.iter().for_each(|value| names(value, found)),
                _ => {}
            }
        }
        let mut found = Vec::new();
        names(&self.whole["types"], &mut found);
        names(&self.whole["requests"], &mut found);
        assert!(!found.is_empty());
        for name in found {
            self.type_of(name);
        }
    }
}

/// What a body is called: by its type, if that has a name.
fn place(kind: &Value) -> &str {
    kind.get("type").and_then(Value::as_str).unwrap_or("body")
}

fn whole(value: &Value) -> Option<i128> {
    value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from))
}

/// Whether a number is within bounds, of which either may be missing.
fn is_within(bounds: &Value, number: Option<i128>) -> bool {
    let (least, most) = (whole(&bounds[0]), whole(&bounds[1]));
    number.is_some_and(|n| least.is_none_or(|least| n >= least) && most.is_none_or(|most| n <= most))
}

fn bounds(bounds: &Value) -> String {
    let said = |at: usize| whole(&bounds[at]).map(|bound| bound.to_string()).unwrap_or_default();
    format!("{}..{}", said(0), said(1))
}

/// Names and values of a pattern's `{...}`, if the path matches.
fn matches(pattern: &str, path: &str) -> Option<Vec<(String, String)>> {
    let (mut of_pattern, mut of_path) = (pattern.split('/'), path.split('/'));
    let mut names = Vec::new();
    loop {
        match (of_pattern.next(), of_path.next()) {
            (None, None) => return Some(names),
            (Some(known), Some(is)) if known == is => {}
            (Some(known), Some(is)) if known.starts_with('{') && !is.is_empty() => {
                names.push((known.trim_matches(['{', '}']).into(), is.into()));
            }
            _ => return None,
        }
    }
}
