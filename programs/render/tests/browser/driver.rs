//! A headless Chromium, driven by the WebDriver protocol: JSON over HTTP, one call at a time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

/// The timeout of one call.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with a new profile, closed on drop.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// Allows one browser at a time: if several start at once next to other tests, one may exit.
static TURN: Mutex<()> = Mutex::new(());

impl Browser {
    /// Starts a browser, or returns what this machine lacks.
    pub(crate) fn start() -> Result<Self, String> {
        if !Path::new("/usr/bin/chromium").exists() {
            return Err("chromium: not installed; apt install chromium chromium-driver".to_owned());
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut driver = driver.map_err(|error| {
            format!("chromedriver: {error}; apt install chromium chromium-driver")
        })?;
        let said = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = said.map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        let port = port.expect("chromedriver says its port");
        let profile = tempfile::tempdir().unwrap();
        let session = String::new();
        let mut browser = Self { driver, port, session, _profile: profile, _turn: turn };
        browser.open_session();
        Ok(browser)
    }

    fn open_session(&mut self) {
        let profile = format!("--user-data-dir={}", self._profile.path().display());
        let wanted = json!({
            "browserName": "chrome",
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
            "goog:chromeOptions": {
                "binary": "/usr/bin/chromium",
                "args": [
                    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
                    "--no-first-run", "--disable-background-networking",
                    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
                    "--hide-scrollbars", profile,
                ],
            },
        });
        let answer = self.call("POST", "", &json!({ "capabilities": { "alwaysMatch": wanted } }));
        answer["sessionId"].as_str().unwrap().clone_into(&mut self.session);
        // Leaves the browser's own start page, which makes many requests.
        self.call("POST", "/url", &json!({ "url": "about:blank" }));
    }

    /// Shows `page`, a file, on a screen that is `width` pixels wide.
    pub(crate) fn show(&self, page: &Path, width: u32, dark: bool) {
        let height = if width < 600 { 844 } else { 900 };
        let scheme = if dark { "dark" } else { "light" };
        let mobile = width < 600;
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            &json!({
                "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile,
            }),
        );
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
        let address = format!("file://{}", page.display());
        self.call("POST", "/url", &json!({ "url": address }));
        // A loaded page is not yet a visible one: for a moment it may be behind the page that it replaces, and no
        // screenshot can be taken.
        let shown = "const done = arguments[0];
            requestAnimationFrame(() => requestAnimationFrame(() => done(null)));";
        self.call("POST", "/execute/async", &json!({ "script": shown, "args": [] }));
    }

    /// Runs `script`, the body of a function, and returns its result.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The role and name that a screen reader gets for each element that matches `selector`.
    pub(crate) fn heard(&self, selector: &str) -> Vec<(String, String)> {
        let wanted = json!({ "using": "css selector", "value": selector });
        let found = self.call("POST", "/elements", &wanted);
        let ids =
            found.as_array().unwrap().iter().filter_map(|one| one.as_object()?.values().next());
        ids.map(|id| {
            let of = |what: &str| {
                let path = format!("/element/{}/{what}", id.as_str().unwrap());
                self.call("GET", &path, &Value::Null).as_str().unwrap_or_default().to_owned()
            };
            (of("computedrole"), of("computedlabel"))
        })
        .collect()
    }

    /// The console messages since the last call.
    pub(crate) fn console(&self) -> Vec<String> {
        self.log("browser").iter().map(|entry| entry["message"].to_string()).collect()
    }

    /// The requests since the last call, including the page itself.
    pub(crate) fn requests(&self) -> Vec<String> {
        let told = self.log("performance");
        let events = told.iter().filter_map(|entry| {
            let event: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let event = &event["message"];
            let asked = event["method"] == "Network.requestWillBeSent";
            asked.then(|| event["params"]["request"]["url"].as_str().map(str::to_owned))?
        });
        events.collect()
    }

    /// Takes a screenshot of the whole page, or of its first `height` pixels, as a PNG image.
    pub(crate) fn picture(&self, width: u32, height: u32) -> Vec<u8> {
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
        let wanted = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let answer = self.devtools("Page.captureScreenshot", &wanted);
        base64(answer["data"].as_str().unwrap())
    }

    fn log(&self, kind: &str) -> Vec<Value> {
        let answer = self.call("POST", "/se/log", &json!({ "type": kind }));
        answer.as_array().unwrap().clone()
    }

    fn devtools(&self, method: &str, params: &Value) -> Value {
        self.call("POST", "/goog/cdp/execute", &json!({ "cmd": method, "params": params }))
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let value = self.try_call(method, path, body).unwrap();
        assert!(value["error"].is_null() || method == "GET", "{path}: {value}");
        value
    }

    fn try_call(&self, method: &str, path: &str, body: &Value) -> std::io::Result<Value> {
        let session = match self.session.as_str() {
            "" => "/session".to_owned(),
            session => format!("/session/{session}"),
        };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(
            stream,
            "{method} {session}{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            answer.read_line(&mut line)?;
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(std::io::Error::other)?;
            }
            if line.is_empty() {
                break;
            }
        }
        let mut text = vec![0; length];
        answer.read_exact(&mut text)?;
        let mut answer: Value = serde_json::from_slice(&text)?;
        Ok(answer["value"].take())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Closing the session makes the driver close its browser; if the driver were killed first, it would not.
        let _ = self.try_call("DELETE", "", &Value::Null);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0u32, 0);
    for c in text.bytes() {
        let Some(value) = ALPHABET.iter().position(|known| *known == c) else { break };
        bits = (bits << 6) | u32::try_from(value).unwrap();
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from((bits >> held) & 0xff).unwrap());
        }
    }
    bytes
}
