//! The page of a run in progress, served by the test's own server.

use super::driver::{Browser, wait_for};
use super::{WIDE, draw_all, everything, number};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use weigh_report::{LivePage, Report, render_live};
use weigh_stats::{Warning, WarningKind};

/// The content of the server, and the requests that it got.
struct Content {
    page: String,
    version: u64,
    finished: bool,
    asked: Vec<String>,
    /// Whether the server ends before it answers with the page.
    gone: bool,
}

fn page(report: &Report, version: u64, ended: bool) -> String {
    let live = LivePage { version, made: format!("2026-11-22 19:0{version}:12"), ended };
    render_live(report, &live).expect("a page")
}

fn answer(stream: TcpStream, content: &Mutex<Content>) -> std::io::Result<()> {
    let mut reader = BufReader::new(&stream);
    let mut request = String::new();
    if reader.read_line(&mut request)? == 0 {
        // A browser may open a connection in advance and close it unused.
        return Ok(());
    }
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let path = request.split(' ').nth(1).unwrap_or_default().to_string();
    let (kind, body) = {
        let mut content = content.lock().expect("no panic");
        content.asked.push(path.clone());
        if content.gone && path == "/" {
            return Ok(());
        }
        match path.as_str() {
            "/state" => (
                "application/json",
                format!(
                    r#"{{"version":{},"finished":{},"blocks_done":7,"blocks":30,"doing":"<b>redis</b> in docker"}}"#,
                    content.version, content.finished
                ),
            ),
            _ => ("text/html; charset=utf-8", content.page.clone()),
        }
    };
    write!(
        &stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// The position of the first table of the first workload on the screen.
const PLACE: &str =
    "return document.querySelectorAll('#workload-0 table.cells')[0].getBoundingClientRect().top";

#[test]
fn a_newer_page_is_loaded_and_the_view_is_kept() {
    let Some(browser) = Browser::new("a_newer_page_is_loaded_and_the_view_is_kept") else { return };
    browser.screen(WIDE.0, WIDE.1, "light");
    let mut report = everything();
    (report.blocks_planned, report.blocks_done) = (Some(30), Some(6));
    let content = Arc::new(Mutex::new(Content {
        page: page(&report, 1, false),
        version: 1,
        finished: false,
        asked: Vec::new(),
        gone: false,
    }));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let served = Arc::clone(&content);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _gone = answer(stream, &served);
        }
    });

    browser.visit(&format!("http://{address}/"));
    let line = || browser.evaluate("return document.getElementById('live').textContent");
    assert!(line().as_str().is_some_and(|text| text.starts_with("In progress: ")), "{}", line());
    browser.wait(
        "how far the run is",
        "return document.getElementById('live').textContent.includes('7 of 30 blocks are done; now <b>redis</b> in docker')",
    );
    draw_all(&browser);
    // A filter, an order, an open section, a filtered plot, and a place in the middle.
    browser.evaluate(
        "document.querySelectorAll('details').forEach((details, at) => { details.open = at % 2 === 0; });
         const forest = document.getElementById('forest-filter'); forest.value = 'noploop'; forest.dispatchEvent(new Event('input'));
         const table = document.querySelector('#workload-0 table.cells');
         const input = table.closest('.scroll').previousElementSibling.querySelector('input');
         input.value = 'e'; input.dispatchEvent(new Event('input')); input.focus({ preventScroll: true }); input.setSelectionRange(1, 1);
         table.tHead.rows[0].cells[1].querySelector('button').click();
         scrollTo(0, scrollY + table.getBoundingClientRect().top + 40);",
    );
    let seen = "const table = document.querySelector('#workload-0 table.cells');
         const input = table.closest('.scroll').previousElementSibling.querySelector('input');
         return [input.value, document.activeElement === input, table.tHead.rows[0].cells[1].getAttribute('aria-sort'),
           [...table.tBodies[0].rows].map((row) => [row.hidden, row.cells[0].textContent]),
           [...document.querySelectorAll('details')].map((details) => details.open), document.getElementById('forest-filter').value]";
    let (before, place) = (browser.evaluate(seen), number(&browser.evaluate(PLACE)));
    assert!(place < 0.0, "the page is scrolled: {place}");

    // The next page has an additional sentence above the visible part.
    report.blocks_done = Some(7);
    let kind = WarningKind::RunIncomplete { done: 7, planned: 30 };
    report.analysis.warnings.push(Warning { workload: None, metric: None, environment: None, kind });
    report.host.iter_mut().for_each(|host| host.cpu_model.push_str(&" of a long name".repeat(60)));
    let publish = |version, finished| {
        let mut content = content.lock().expect("no panic");
        content.page = page(&report, version, finished);
        (content.version, content.finished) = (version, finished);
        content.asked.clear();
    };
    let came = |version: u64| {
        let asked = || content.lock().expect("no panic").asked.iter().any(|path| path == "/").then_some(());
        wait_for("the next page", asked);
        browser.wait(
            "its script",
            &format!(
                "return document.documentElement.dataset.live === 'yes' && document.getElementById('live').dataset.version === '{version}'"
            ),
        );
    };
    publish(2, false);
    came(2);
    assert_eq!(browser.evaluate(seen), before, "filter, focus, order and sections are what they were");
    let after = number(&browser.evaluate(PLACE));
    assert!((after - place).abs() < 2.0, "what was looked at is where it was: {after}, not {place}");
    assert!(
        line().as_str().is_some_and(|text| text.starts_with("In progress: 7 of 30 blocks")),
        "{}",
        line()
    );

    // A server that is gone before it answers with the last page takes nothing away.
    assert_eq!(browser.entries("browser"), [""; 0], "the console is silent");
    content.lock().expect("no panic").gone = true;
    publish(3, true);
    browser.wait(
        "the end of the server",
        "return document.getElementById('live').textContent.startsWith('The run does not answer')",
    );
    assert_eq!(browser.evaluate(seen), before, "the page is still there");
    // The browser says that the request failed.
    browser.entries("browser");
    content.lock().expect("no panic").gone = false;
    browser.evaluate("document.dispatchEvent(new Event('visibilitychange'))");

    // The last page comes once, and then the server gets no more requests.
    came(3);
    assert!(line().as_str().is_some_and(|text| text.starts_with("The run has ended")), "{}", line());
    content.lock().expect("no panic").asked.clear();
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(content.lock().expect("no panic").asked, [""; 0], "the run has ended");
    let last = number(&browser.evaluate(PLACE));
    assert!((last - after).abs() < 2.0, "what was looked at is where it was: {last}, not {after}");
    assert_eq!(browser.entries("browser"), [""; 0], "the console is silent");
    let elsewhere = browser.requests().into_iter().filter(|url| {
        !url.starts_with("data:")
            && !url.starts_with("blob:")
            && !url.starts_with(&format!("http://{address}/"))
    });
    assert_eq!(elsewhere.collect::<Vec<_>>(), [""; 0], "nobody else is asked for anything");
}
