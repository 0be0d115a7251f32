//! A page of the book as a Markdown reader sees it.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// A page.
#[derive(Debug, Default)]
pub struct Page {
    /// Relative to the root of the checkout.
    pub path: PathBuf,
    /// The targets of its links and pictures, as written.
    pub links: Vec<String>,
    /// What links can name after `#`: the anchors that mdBook and hosts of repositories make of
    /// headings.
    pub anchors: Vec<String>,
    /// Code between backquotes in headings.
    pub heading_words: Vec<String>,
    /// Code between backquotes, everywhere.
    pub words: Vec<String>,
    /// Blocks of code: language, text.
    pub blocks: Vec<(String, String)>,
}

impl Page {
    /// Reads a page.
    pub fn parse(path: &Path, text: &str) -> Self {
        let mut page = Self { path: path.into(), ..Self::default() };
        let mut heading: Option<String> = None;
        let mut block: Option<(String, String)> = None;
        for event in Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH) {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.add_anchor(&heading.take().unwrap_or_default()),
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.to_string());
                }
                Event::Start(Tag::CodeBlock(kind)) => {
                    let language = match kind {
                        CodeBlockKind::Fenced(language) => language.to_string(),
                        CodeBlockKind::Indented => String::new(),
                    };
                    block = Some((language, String::new()));
                }
                Event::End(TagEnd::CodeBlock) => page.blocks.extend(block.take()),
                Event::Text(text) => {
                    if let Some((_, block)) = &mut block {
                        block.push_str(&text);
                    } else if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::Code(word) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&word);
                        page.heading_words.push(word.to_string());
                    }
                    page.words.push(word.to_string());
                }
                _ => {}
            }
        }
        page
    }

    /// Adds an anchor: letters, digits, `_` and `-`, in lower case, with blanks as `-`. A second
    /// one of the same name gets `-1`.
    fn add_anchor(&mut self, heading: &str) {
        let kept = heading.trim().chars().filter_map(|c| match c {
            c if c.is_whitespace() => Some('-'),
            c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c),
            _ => None,
        });
        let bare: String = kept.collect::<String>().to_lowercase();
        let numbered = (1..).map(|number| format!("{bare}-{number}"));
        let free = std::iter::once(bare.clone()).chain(numbered).find(|name| !self.anchors.contains(name));
        self.anchors.extend(free);
    }

    /// Its broken links, each with the reason. `is_file` says whether something below the root is a
    /// file.
    ///
    /// A page below `docs/` may only link to files below `docs/`, since the book has nothing else.
    /// It may not link to `README.md`, which becomes `index.html` and is known by that name only to
    /// SUMMARY.md.
    pub fn broken_links(
        &self,
        pages: &BTreeMap<PathBuf, Self>,
        is_file: &dyn Fn(&Path) -> bool,
    ) -> Vec<String> {
        let fault = |link: &str| -> Option<&'static str> {
            if ["http://", "https://", "mailto:"].iter().any(|scheme| link.starts_with(scheme)) {
                return None;
            }
            let (file, anchor) = link.split_once('#').map_or((link, None), |(file, name)| (file, Some(name)));
            let Some(target) = self.target(file) else { return Some("leads out of the repository") };
            let in_book = |path: &Path| path.starts_with("docs");
            if !is_file(&target) {
                return Some("is no file");
            }
            if in_book(&self.path) && !in_book(&target) {
                return Some("leads out of the book");
            }
            let to_title = !file.is_empty() && target == Path::new("docs/README.md");
            if in_book(&self.path) && to_title && !self.path.ends_with("SUMMARY.md") {
                return Some("is index.html in the book");
            }
            let anchor = anchor?;
            let has = pages.get(&target).is_some_and(|page| page.anchors.iter().any(|name| name == anchor));
            (!has).then_some("has no such heading")
        };
        let told = |link: &String| Some(format!("{}: {link} {}", self.path.display(), fault(link)?));
        self.links.iter().filter_map(told).collect()
    }

    /// The path of a link's file below the root; `None` if it leads out of the root.
    fn target(&self, file: &str) -> Option<PathBuf> {
        if file.is_empty() {
            return Some(self.path.clone());
        }
        let mut parts: Vec<&std::ffi::OsStr> = self.path.parent()?.iter().collect();
        for part in Path::new(file).components() {
            match part {
                Component::Normal(name) => parts.push(name),
                Component::ParentDir => drop(parts.pop()?),
                Component::CurDir => {}
                Component::RootDir | Component::Prefix(_) => return None,
            }
        }
        Some(parts.iter().collect())
    }
}
