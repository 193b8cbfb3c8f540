//! The programs that a container's command line starts, behind shells and wrappers. Pure.

/// How many shells and wrappers may stand before a program: no real command line comes near it.
const MOST_NESTED: usize = 16;

/// A program that starts another one.
struct Wrapper {
    name: &'static str,
    /// Its options whose value is the next word.
    with_value: &'static [&'static str],
    /// How many operands of its own come before the other program.
    operands: usize,
}

const fn wrapper(
    name: &'static str,
    with_value: &'static [&'static str],
    operands: usize,
) -> Wrapper {
    Wrapper { name, with_value, operands }
}

/// The wrappers that control planes are started with.
const WRAPPERS: [Wrapper; 26] = [
    wrapper("catatonit", &["-g"], 0),
    wrapper("chroot", &[], 1),
    wrapper("chrt", &["-T", "-P", "-D"], 1),
    wrapper("command", &[], 0),
    wrapper("dumb-init", &["-r"], 0),
    wrapper("env", &["-u", "-C", "--unset", "--chdir"], 0),
    wrapper("exec", &["-a"], 0),
    wrapper("flock", &["-w", "-E", "--timeout", "--wait"], 1),
    wrapper("go-runner", &["--log-file"], 0),
    wrapper("gosu", &[], 1),
    wrapper("hyperkube", &[], 0),
    wrapper("ionice", &["-c", "-n", "--class", "--classdata"], 0),
    wrapper("nice", &["-n", "--adjustment"], 0),
    wrapper("nohup", &[], 0),
    wrapper("numactl", &["-C", "-N", "-m", "-i", "-p"], 0),
    wrapper("prlimit", &[], 0),
    wrapper("runuser", &["-u", "-g"], 0),
    wrapper("setpriv", &["--reuid", "--regid", "--groups", "--bounding-set"], 0),
    wrapper("setsid", &[], 0),
    wrapper("stdbuf", &["-i", "-o", "-e"], 0),
    wrapper("su-exec", &[], 1),
    wrapper("taskset", &[], 1),
    wrapper("time", &["-f", "-o"], 0),
    wrapper("timeout", &["-k", "-s", "--kill-after", "--signal"], 1),
    wrapper("tini", &["-p", "-e"], 0),
    wrapper("watch-termination", &[], 0),
];

const SHELLS: [&str; 5] = ["sh", "bash", "dash", "ash", "busybox"];

/// The words of a shell before which a command stands.
const KEYWORDS: [&str; 10] =
    ["if", "then", "else", "elif", "while", "until", "do", "!", "{", "eval"];

/// The names, without directories, of the programs that the words of a command line start. A script of a shell may
/// start several.
pub(super) fn programs<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut found = Vec::new();
    let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    collect(&words, MOST_NESTED, &mut found);
    found
}

fn collect(words: &[String], depth: usize, found: &mut Vec<String>) {
    let mut words = words;
    for _ in 0..depth {
        let is_skipped = |word: &String| KEYWORDS.contains(&&**word) || is_assignment(word);
        words = &words[words.iter().take_while(|word| is_skipped(word)).count()..];
        let Some((first, rest)) = words.split_first() else { return };
        let name = first.rsplit('/').next().unwrap_or_default();
        if SHELLS.contains(&name) {
            return of_shell(rest, depth - 1, found);
        }
        match WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
            Some(wrapper) => words = wrapper.started(rest),
            None => return found.push(name.to_owned()),
        }
    }
}

/// Adds what a shell with these arguments starts: the commands of its script, or the script's file.
fn of_shell(arguments: &[String], depth: usize, found: &mut Vec<String>) {
    let mut takes_script = false;
    for argument in arguments {
        match argument.strip_prefix('-') {
            Some(options) if !options.starts_with('-') => takes_script |= options.contains('c'),
            // `busybox sh`, and options with two hyphens.
            Some(_) => {}
            None if SHELLS.contains(&&**argument) => {}
            None if takes_script => {
                return commands(argument).iter().for_each(|words| collect(words, depth, found));
            }
            None => return collect(std::slice::from_ref(argument), depth, found),
        }
    }
}

/// Whether the word sets a variable for the program after it.
fn is_assignment(word: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    word.split_once('=').is_some_and(|(name, _)| is_name(name))
}

/// The simple commands of a shell script, each as its words, without quotes and redirections. Nothing is expanded, and
/// a quoted text is never a command.
fn commands(script: &str) -> Vec<Vec<String>> {
    let mut read = Script::default();
    let mut chars = script.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('\n') | None => {}
                Some(next) => read.word().push(next),
            },
            '\'' => read.word().extend(chars.by_ref().take_while(|c| *c != '\'')),
            '"' => quoted(&mut chars, read.word()),
            '#' if read.word.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            '>' | '<' => {
                read.redirect();
                chars.next_if(|c| *c == '&');
            }
            // `&>file`
            '&' if chars.peek() == Some(&'>') => {}
            ' ' | '\t' | '\r' => read.end_word(),
            '\n' | ';' | '&' | '|' | '(' | ')' | '`' => read.end_command(),
            c => read.word().push(c),
        }
    }
    read.end_command();
    read.commands
}

/// What has been read of a shell script.
#[derive(Default)]
struct Script {
    commands: Vec<Vec<String>>,
    words: Vec<String>,
    word: Option<String>,
    /// Whether the next word is where something is redirected to.
    is_target: bool,
}

impl Script {
    fn word(&mut self) -> &mut String {
        self.word.get_or_insert_default()
    }

    /// Ends the word before a redirection, which may be the number or the name of a descriptor.
    fn redirect(&mut self) {
        let is_descriptor = |word: &str| {
            word.chars().all(|c| c.is_ascii_digit())
                || (word.starts_with('{') && word.ends_with('}'))
        };
        if self.word.as_deref().is_some_and(is_descriptor) {
            self.word = None;
        }
        self.end_word();
        self.is_target = true;
    }

    fn end_word(&mut self) {
        if let Some(word) = self.word.take()
            && !std::mem::take(&mut self.is_target)
        {
            self.words.push(word);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        self.is_target = false;
        self.commands.push(std::mem::take(&mut self.words));
    }
}

/// Adds the rest of a text in double quotes to `word`.
fn quoted(chars: &mut impl Iterator<Item = char>, word: &mut String) {
    while let Some(c) = chars.next() {
        match c {
            '"' => return,
            '\\' => word.extend(chars.next()),
            c => word.push(c),
        }
    }
}

impl Wrapper {
    /// The words of the program that it starts, given the words after its own.
    fn started<'a>(&self, arguments: &'a [String]) -> &'a [String] {
        let (mut at, mut operands) = (0, self.operands);
        while let Some(argument) = arguments.get(at) {
            match &**argument {
                "--" => return &arguments[at + 1..],
                option if option.starts_with('-') => {
                    at += usize::from(self.with_value.contains(&option));
                }
                _ if operands == 0 => break,
                _ => operands -= 1,
            }
            at += 1;
        }
        arguments.get(at..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::programs;

    #[test]
    fn a_program_is_found_behind_shells_and_wrappers() {
        let table: [(&[&str], &[&str]); 22] = [
            (&["kube-apiserver", "--etcd-servers=https://etcd:2379"], &["kube-apiserver"]),
            (&["/usr/local/bin/etcd", "--name", "a"], &["etcd"]),
            (&["/bin/sh", "-c", "exec /etcd --name a"], &["etcd"]),
            (
                &["sh", "-ec", "A=b exec nice -n -19 ionice -c2 -n0 etcd \\\n --x || mv a b"],
                &["etcd", "mv"],
            ),
            (&["/bin/bash", "-c", "timeout -k 5 -s KILL 1h etcd"], &["etcd"]),
            (&["timeout", "--kill-after=5", "1h", "/bin/bash", "-ec", "etcd"], &["etcd"]),
            (&["env", "-u", "HOME", "A=etcdctl", "kube-scheduler"], &["kube-scheduler"]),
            (
                &["/go-runner", "--log-file=/l", "--also-stdout=false", "/bin/kube-apiserver"],
                &["kube-apiserver"],
            ),
            (
                &["watch-termination", "--a=b", "--", "hyperkube", "kube-apiserver", "-v=2"],
                &["kube-apiserver"],
            ),
            (&["su-exec", "etcd", "haproxy", "-f", "etcd"], &["haproxy"]),
            (&["/tini", "-p", "TERM", "--", "etcd"], &["etcd"]),
            (&["/bin/sh", "/start-etcd.sh", "etcd"], &["start-etcd.sh"]),
            (&["busybox", "sh", "-c", "etcd"], &["etcd"]),
            (&["sh", "-c", "echo -n \"wait; etcd is starting\"; curl k"], &["echo", "curl"]),
            (&["sh", "-c", "echo 'a\netcd' # ; etcd\ncurl k"], &["echo", "curl"]),
            (
                &["sh", "-c", "(tee -a /l < /p &) ; exec /etcd-manager --x > /p 2>&1"],
                &["tee", "etcd-manager"],
            ),
            (
                &["sh", "-c", "if [ -e /m ]; then /m.sh 1>>/l 2>&1; fi; exec /bin/etcd"],
                &["[", "m.sh", "fi", "etcd"],
            ),
            (&["sh", "-c", "exec {FD}>/l && flock -w 30 /l kube-apiserver"], &["kube-apiserver"]),
            (&["sh", "-c", "until curl k; do sleep 1; done"], &["curl", "sleep", "done"]),
            (&["sh", "-c", "> /etcd 2>/a/etcd </etcd exec {F}>>/etcd"], &[]),
            (&["sh", "-c"], &[]),
            (&[], &[]),
        ];
        for (words, found) in table {
            assert_eq!(programs(words.iter().copied()), found, "{words:?}");
        }
    }

    proptest! {
        #[test]
        fn no_words_are_too_much(words in proptest::collection::vec(
            prop_oneof![
                Just("sh".to_owned()), Just("-c".to_owned()), Just("exec".to_owned()),
                Just("--".to_owned()), ".{0,20}", "[-ac\"'\\\\;&|()<>#` \n]{0,20}",
            ],
            0..12,
        )) {
            let found = programs(words.iter().map(String::as_str));
            prop_assert!(found.iter().map(String::len).sum::<usize>() <= words.iter().map(String::len).sum());
        }
    }
}
