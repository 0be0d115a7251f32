//! A published description of an API, in the reduced form of the JSON files beside this one, and
//! what it says about a request.

use serde_json::{Map, Value};

/// The description of one monitor's API.
pub struct Description {
    whole: Value,
}

/// What a description says about a request.
pub struct DescribedRequest<'a> {
    request: &'a Value,
    /// Names and values of the path's `{...}`.
    pub names: Vec<(String, String)>,
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
        match (known.request.get("body").and_then(Value::as_str), body) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err("it takes no body".into()),
            (Some(kind), None) => Err(format!("it takes a {kind}")),
            (Some(kind), Some(body)) => {
                self.check(&serde_json::json!({ "type": kind }), body, kind)?;
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
        let answers = known.request["answers"].as_object().unwrap();
        let Some(kind) = answers.get(&status.to_string()) else {
            return Err(format!("there is no answer {status}"));
        };
        match (kind.as_str(), body) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err(format!("answer {status} has no body")),
            (Some(kind), None) => Err(format!("answer {status} is a {kind}")),
            (Some(kind), Some(body)) => self.check(&serde_json::json!({ "type": kind }), body, kind),
        }
    }

    fn check(&self, kind: &Value, value: &Value, place: &str) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{place} is {value} and not {what}"));
        if let Some(word) = kind.as_str() {
            let right = match word {
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "integer" => value.is_i64() || value.is_u64(),
                "object" => value.is_object(),
                other => panic!("the description has a `{other}`"),
            };
            return if right { Ok(()) } else { wrong(word) };
        }
        if let Some(name) = kind.get("type").and_then(Value::as_str) {
            let found = self.whole["types"].get(name).unwrap_or_else(|| panic!("no type {name}"));
            return self.check(found, value, place);
        }
        if let Some(words) = kind.get("enum").and_then(Value::as_array) {
            return if words.contains(value) {
                Ok(())
            } else {
                wrong(&Value::from(words.clone()).to_string())
            };
        }
        if let Some(bounds) = kind.get("integer").and_then(Value::as_array) {
            let bound = |at: usize| bounds[at].as_i64().unwrap();
            let within = value.as_i64().is_some_and(|n| (bound(0)..=bound(1)).contains(&n));
            return if within {
                Ok(())
            } else {
                wrong(&format!("a whole number of {}..{}", bound(0), bound(1)))
            };
        }
        if let Some(of) = kind.get("list") {
            let Some(items) = value.as_array() else { return wrong("a list") };
            return items
                .iter()
                .enumerate()
                .try_for_each(|(at, item)| self.check(of, item, &format!("{place}[{at}]")));
        }
        let fields = kind.get("fields").and_then(Value::as_object).unwrap_or_else(|| panic!("{kind}"));
        let Some(object) = value.as_object() else { return wrong("an object") };
        self.check_object(kind, fields, object, place)
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

    /// The type of refusals, if there is one.
    pub fn error(&self) -> Option<&str> {
        self.whole["error"].as_str()
    }

    /// Asserts that every type that is named exists, so that no check is empty.
    pub fn assert_whole(&self) {
        fn names(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(map) => {
                    if let Some(name) = map.get("type").and_then(Value::as_str) {
                        found.push(name.into());
                    }
                    map.values().for_each(|value| names(value, found));
                }
                Value::Array(items) => items.iter().for_each(|value| names(value, found)),
                _ => {}
            }
        }
        let mut found = Vec::new();
        names(&self.whole["types"], &mut found);
        for request in self.whole["requests"].as_object().unwrap().values() {
            found.extend(request.get("body").and_then(Value::as_str).map(String::from));
            found.extend(
                request["answers"].as_object().unwrap().values().filter_map(Value::as_str).map(String::from),
            );
        }
        found.extend(self.error().map(String::from));
        for name in found {
            assert!(self.whole["types"].get(&name).is_some(), "no type {name}");
        }
        for (name, kind) in self.whole["types"].as_object().unwrap() {
            for needed in kind.get("required").and_then(Value::as_array).into_iter().flatten() {
                assert!(kind["fields"].get(needed.as_str().unwrap()).is_some(), "{name}: {needed}");
            }
        }
    }
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
