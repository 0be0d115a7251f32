//! A page as a tree of elements, and its headings, tables and figures.

use std::collections::BTreeMap;

/// Elements that have no end tag.
const VOID: [&str; 3] = ["meta", "br", "input"];

#[derive(Debug)]
pub enum Node {
    Element(Element),
    Text(String),
}

#[derive(Debug, Default)]
pub struct Element {
    pub tag: String,
    pub attributes: BTreeMap<String, String>,
    pub children: Vec<Node>,
}

/// A table in words.
#[derive(Debug)]
pub struct Table {
    pub caption: String,
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// A figure: its kind, the index of its data, and its description.
#[derive(Debug)]
pub struct Figure {
    pub kind: String,
    pub index: usize,
    pub caption: String,
    pub alt: String,
}

impl Element {
    /// Parses a page into a tree. Fails if an element does not end where it must.
    pub fn parse(page: &str) -> Self {
        let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a document type");
        let mut open = vec![Self::default()];
        while let Some(at) = rest.find('<') {
            let (text, tag) = rest.split_at(at);
            let end = tag.find('>').expect("a tag ends");
            let (inside, after) = (&tag[1..end], &tag[end + 1..]);
            rest = after;
            let parent = open.last_mut().expect("a root");
            if !text.is_empty() {
                parent.children.push(Node::Text(decoded(text)));
            }
            if let Some(name) = inside.strip_prefix('/') {
                let element = open.pop().expect("an open element");
                assert_eq!(element.tag, name, "an element ends inside of another");
                open.last_mut().expect("a parent").children.push(Node::Element(element));
                continue;
            }
            let element = Self::of(inside.trim_end_matches('/'));
            if ["script", "style"].contains(&element.tag.as_str()) {
                let (code, after) =
                    rest.split_once(&format!("</{}>", element.tag)).expect("code ends with its element");
                rest = after;
                let children = vec![Node::Text(code.into())];
                parent.children.push(Node::Element(Self { children, ..element }));
            } else if inside.ends_with('/') || VOID.contains(&element.tag.as_str()) {
                parent.children.push(Node::Element(element));
            } else {
                open.push(element);
            }
        }
        assert_eq!(open.len(), 1, "an element does not end: {:?}", open.last().map(|e| &e.tag));
        open.remove(0)
    }

    fn of(inside: &str) -> Self {
        let (tag, mut rest) = inside.split_once(' ').unwrap_or((inside, ""));
        let mut attributes = BTreeMap::new();
        while !rest.trim().is_empty() {
            rest = rest.trim_start();
            match rest.split_once("=\"").filter(|(name, _)| !name.contains(' ')) {
                Some((name, value)) => {
                    let (value, after) = value.split_once('"').expect("a value ends");
                    attributes.insert(name.to_string(), decoded(value));
                    rest = after;
                }
                None => {
                    let (name, after) = rest.split_once(' ').unwrap_or((rest, ""));
                    attributes.insert(name.to_string(), String::new());
                    rest = after;
                }
            }
        }
        Self { tag: tag.into(), attributes, children: Vec::new() }
    }

    /// The elements directly in this one.
    pub fn inner(&self) -> impl Iterator<Item = &Self> {
        self.children.iter().filter_map(|child| match child {
            Node::Element(element) => Some(element),
            Node::Text(_) => None,
        })
    }

    /// Every element below this one, in order.
    fn below(&self) -> Vec<&Self> {
        self.inner().flat_map(|element| std::iter::once(element).chain(element.below())).collect()
    }

    /// The elements below this one with one of these tags.
    pub fn all(&self, tags: &[&str]) -> Vec<&Self> {
        self.below().into_iter().filter(|element| tags.contains(&element.tag.as_str())).collect()
    }

    /// The value of an attribute; empty if there is none.
    pub fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    /// All text in it, on one line.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text.split_whitespace().collect::<Vec<_>>().join(" ").replace('−', "-")
    }

    fn write(&self, text: &mut String) {
        for child in &self.children {
            match child {
                Node::Text(words) => text.push_str(words),
                Node::Element(element) => {
                    // Spaces separate lines and cells.
                    text.push(' ');
                    element.write(text);
                    text.push(' ');
                }
            }
        }
    }

    pub fn tables(&self) -> Vec<Table> {
        self.all(&["table"]).into_iter().map(Self::table).collect()
    }

    fn table(&self) -> Table {
        let cells = |row: &Self| row.all(&["th", "td"]).iter().map(|cell| cell.text()).collect();
        let mut rows = self.all(&["tr"]).into_iter().map(cells);
        let head = rows.next().unwrap_or_default();
        Table { caption: self.all(&["caption"])[0].text(), head, rows: rows.collect() }
    }

    pub fn figures(&self) -> Vec<Figure> {
        let figure = |figure: &&Self| Figure {
            kind: figure.attribute("data-kind").into(),
            index: figure.attribute("data-index").parse().expect("the number of its data"),
            caption: figure.all(&["figcaption"])[0].text(),
            alt: figure.all(&["div"])[0].attribute("aria-label").into(),
        };
        self.all(&["figure"]).iter().map(figure).collect()
    }

    /// Headings, tables with their columns and number of rows, and figures, one line each.
    pub fn outline(&self) -> String {
        let mut lines = Vec::new();
        for element in self.all(&["h1", "h2", "h3", "table", "figure"]) {
            lines.push(match element.tag.as_str() {
                "table" => {
                    let Table { caption, head, rows } = element.table();
                    format!("  table {caption}: {} ({} rows)", head.join(" | "), rows.len())
                }
                "figure" => {
                    let caption = element.all(&["figcaption"])[0].text();
                    format!("  figure {}: {caption}", element.attribute("data-kind"))
                }
                heading => format!("{heading} {}", element.text()),
            });
        }
        lines.join("\n") + "\n"
    }
}

fn decoded(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#x27;", "'")
        .replace("&amp;", "&")
}
