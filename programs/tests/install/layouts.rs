//! The files of kubelets as distributions lay them out: what doctor and installation say of each, and what becomes of
//! the kubelet's configuration if an operator does to the letter what they say.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use winddown_install::{
    Companion, InstallError, InstallOptions, NextStep, install_on, uninstall_on,
};

use super::companion::{HEAD, laid_out};
use super::image::Image;

const LAYOUTS: [&str; 12] = [
    "kubeadm",
    "k3s",
    "k3s-agent",
    "rke2",
    "microk8s",
    "openshift",
    "kops",
    "gce",
    "eks",
    "bottlerocket",
    "talos",
    "json",
];

const COMPANION: &str = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nmode: companion\n\
                         runtime: cri\nkubeconfig: /etc/kubeconfig\n";

fn beside(layout: &str) -> Image {
    let image = Image::new();
    let mut copy = Command::new("cp");
    copy.arg("-R").arg(laid_out(layout).join(".")).arg(image.root.path());
    assert!(copy.status().unwrap().success());
    image
}

fn options(image: &Image, dry_run: bool) -> InstallOptions {
    InstallOptions { companion: Some(Companion::default()), dry_run, ..image.options() }
}

/// The configuration of a companion in an image: what the installation writes, where it knows the kubelet.
fn config_of_companion(layout: &str) -> String {
    let image = beside(layout);
    image.put("usr/lib/systemd/systemd", "");
    match install_on(&options(&image, false), None) {
        Ok(_) => image.read("etc/winddown/config.yaml"),
        Err(_) => COMPANION.to_owned(),
    }
}

/// What doctor says of the kubelet in an image, as long as winddown is not there, or once its agent is a companion.
fn doctors_finding(layout: &str, id: &str, config: Option<&str>) -> String {
    let image = beside(layout);
    if let Some(text) = config {
        fs::create_dir_all(image.path("etc/winddown")).unwrap();
        fs::write(image.path("etc/winddown/config.yaml"), text).unwrap();
    }
    let winddown = env!("CARGO_BIN_EXE_winddown");
    let root = image.root.path().to_str().unwrap();
    let output = Command::new(winddown).args(["doctor", "--root", root, "-o", "json"]).output();
    let said: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let findings = said["findings"].as_array().unwrap();
    let Some(found) = findings.iter().find(|finding| finding["id"] == id) else {
        return "nothing is said of a kubelet\n".to_owned();
    };
    let mut text =
        format!("{} {}\n", found["severity"].as_str().unwrap(), found["title"].as_str().unwrap());
    for list in ["evidence", "fix", "advice"] {
        let lines = found[list].as_array().cloned().unwrap_or_default();
        text.extend(lines.iter().map(|line| {
            let line = line.as_str().map_or_else(|| line.to_string(), str::to_owned);
            format!("  {list}: {line}\n")
        }));
    }
    text.replace(root, "")
}

#[test]
fn of_each_layout_doctor_and_installation_say_what_the_kubelet_does_and_how_to_change_it() {
    for layout in LAYOUTS.into_iter().chain(["k0s", "microshift"]) {
        let image = beside(layout);
        // Talos has another init.
        if layout != "talos" {
            image.put("usr/lib/systemd/systemd", "");
        }
        let mut text = format!(
            "# doctor, without winddown\n{}# doctor, beside a companion\n{}# install --companion --dry-run\n",
            doctors_finding(layout, "kubelet-shutdown", None),
            doctors_finding(layout, "kubelet", Some(&config_of_companion(layout))),
        );
        match install_on(&options(&image, true), None) {
            Err(error) => text.push_str(&format!("error: {error}\n")),
            Ok(report) => {
                let lines = report.notes.iter().map(|note| format!("Note: {note}\n"));
                text.extend(lines.chain(report.next.iter().map(|line| format!("  {line}\n"))));
                install_on(&options(&image, false), None).unwrap();
                let config = image.read("etc/winddown/config.yaml");
                let (_, fields) = config.split_once("runtime: cri\n").unwrap();
                text.push_str(&format!("# config.yaml{fields}"));
            }
        }
        let text = text.replace(image.root.path().to_str().unwrap(), "");
        insta::assert_snapshot!(format!("kubelet_of_{layout}"), text);
    }
}

/// Nothing shows what the kubelet in such a program is told: the options say it.
#[test]
fn a_companion_of_a_kubelet_that_shows_nothing_is_installed_by_what_it_is_told() {
    let image = beside("microshift");
    let kubeconfig = "/var/lib/microshift/resources/kubelet/kubeconfig";
    let endpoint = "unix:///run/crio/crio.sock";
    let companion = Companion {
        kubeconfig: Some(kubeconfig.into()),
        endpoint: Some(endpoint.to_owned()),
        ..Companion::default()
    };
    let told = InstallOptions { companion: Some(companion), ..options(&image, false) };
    install_on(&told, None).unwrap();
    let config = image.read("etc/winddown/config.yaml");
    for value in [kubeconfig, endpoint] {
        assert!(config.contains(value), "{config}");
    }
}

/// Does what the lines say: a file to write is written, and fields to set are set in the file that is there.
fn carry_out(next: &[NextStep]) {
    let first = next.iter().position(|line| line.ends_with(':')).unwrap();
    let is_field = |line: &&NextStep| line.starts_with("    ");
    let lines: Vec<&str> =
        next[first + 1..].iter().take_while(is_field).map(|line| line.trim()).collect();
    let (verb, rest) = next[first].split_once(" /").unwrap();
    let file = PathBuf::from(format!("/{}", rest.split_once(", so that ").unwrap().0));
    match verb {
        "write this to" => fs::write(file, lines.join("\n") + "\n").unwrap(),
        "set these fields in" => set(&file, &lines),
        other => panic!("{other}"),
    }
}

fn set(file: &Path, lines: &[&str]) {
    let text = fs::read_to_string(file).unwrap();
    if text.starts_with('{') {
        let mut object: Value = serde_json::from_str(&text).unwrap();
        for line in lines {
            let field: Value =
                serde_json::from_str(&format!("{{{}}}", line.trim_end_matches(','))).unwrap();
            object.as_object_mut().unwrap().extend(field.as_object().unwrap().clone());
        }
        fs::write(file, serde_json::to_string_pretty(&object).unwrap()).unwrap();
        return;
    }
    let mut kept: Vec<&str> = Vec::new();
    let mut skips = false;
    for line in text.lines() {
        let is_top = line.starts_with(|c: char| c.is_ascii_alphabetic());
        if is_top {
            let key = line.split(':').next().unwrap();
            skips = lines.iter().any(|field| field.split(':').next() == Some(key));
        }
        if !skips {
            kept.push(line);
        }
    }
    kept.extend(lines);
    fs::write(file, kept.join("\n") + "\n").unwrap();
}

/// The lines with what a node cannot do without, in all files of the image.
fn vital(image: &Image) -> BTreeMap<PathBuf, Vec<String>> {
    fn look(directory: &Path, found: &mut BTreeMap<PathBuf, Vec<String>>) {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                look(&entry.path(), found);
            } else if let Ok(text) = fs::read_to_string(entry.path()) {
                let is_vital = |line: &&str| {
                    ["staticPodPath", "clientCAFile", "cgroupDriver"]
                        .iter()
                        .any(|v| line.contains(v))
                };
                let lines: Vec<_> = text
                    .lines()
                    .filter(is_vital)
                    .map(|line| line.replace([' ', '"', ',', '{', '}'], ""))
                    .collect();
                if !lines.is_empty() {
                    found.insert(entry.path(), lines);
                }
            }
        }
    }
    let mut found = BTreeMap::new();
    for directory in ["etc", "var", "home", "data"] {
        let directory = image.path(directory);
        if directory.is_dir() {
            look(&directory, &mut found);
        }
    }
    // Written in one line or in several, JSON says the same.
    found.values_mut().for_each(|lines| {
        lines.iter_mut().for_each(|line| {
            *line =
                line.rsplit_once("clientCAFile").map_or(line.clone(), |(_, value)| value.into());
        });
    });
    found
}

#[test]
fn whoever_does_to_the_letter_what_is_said_loses_nothing_of_the_kubelets_configuration() {
    for layout in LAYOUTS {
        let image = beside(layout);
        let before = vital(&image);
        let report = install_on(&options(&image, false), None).unwrap();
        let note = |notes: &[String]| notes.iter().find(|n| n.starts_with("the kubelet ")).cloned();
        let on = note(&report.notes).unwrap();
        assert!(on.contains("terminates pods at a shutdown as well"), "{layout}: {on}");
        carry_out(&report.next);
        assert_eq!(vital(&image), before, "{layout}: {:#?}", report.next);

        let report = install_on(&options(&image, false), None).unwrap();
        let off = note(&report.notes).unwrap();
        assert!(off.ends_with("leaves terminating its pods to others"), "{layout}: {off}");
        let report = uninstall_on(&image.removal(false), None).unwrap();
        carry_out(&report.next);
        assert_eq!(vital(&image), before, "{layout}: {:#?}", report.next);

        let report = install_on(&options(&image, true), None).unwrap();
        let again = note(&report.notes).unwrap();
        assert!(again.contains("terminates pods at a shutdown as well"), "{layout}: {again}");
    }
}

/// Paths and names that others chose are quoted where they are values, and one line where they are comments.
#[test]
fn a_path_with_a_line_end_writes_no_line() {
    let image = Image::new();
    let line = "\ncontrolSocketGroup: u1\n# b";
    let put = |file: &str, text: &str| {
        let path = image.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put(&format!("a{line}/config"), &format!("{HEAD}shutdownGracePeriod: \"30s\"\n"));
    put(&format!("a{line}/kubeconfig"), "");
    // A unit cannot have such a name, but a file of k3s can.
    put(
        "etc/rancher/k3s/config.yaml",
        &format!(
            "data-dir: {0}\nkubelet-arg: [{1}, {2}]\n",
            serde_json::to_string(&format!("/a{line}")).unwrap(),
            serde_json::to_string(&format!("config=/a{line}/config")).unwrap(),
            serde_json::to_string(&format!("root-dir=/a{line}")).unwrap(),
        ),
    );
    put("etc/systemd/system/k3s.service", "[Service]\nExecStart=/usr/local/bin/k3s server\n");
    put(&format!("a{line}/agent/kubelet.kubeconfig"), "");
    let report = install_on(&options(&image, false), None).unwrap();
    let config = image.read("etc/winddown/config.yaml");
    for text in [&config, &report.to_string()] {
        assert!(text.contains("controlSocketGroup: u1"), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("controlSocketGroup")), "{text}");
    }
    let parsed = winddown_config::Config::parse(Path::new("c"), config.as_bytes()).unwrap().0;
    let kubeconfig = format!("/a{line}/agent/kubelet.kubeconfig");
    assert_eq!(parsed.cluster.kubeconfig.as_deref(), Some(Path::new(&kubeconfig)));
}

#[test]
fn what_others_can_change_is_named_and_refused_and_force_does_not_override_it() {
    use std::os::unix::fs::PermissionsExt as _;
    for (open, what) in [
        ("etc/kubernetes", "the kubeconfig /etc/kubernetes/kubelet.conf"),
        (
            "var/lib/kubelet",
            "the arguments of kubelet.service are not known: /var/lib/kubelet/kubeadm-flags.env",
        ),
        ("var/lib/kubelet/config.yaml", "the kubelet's configuration /var/lib/kubelet/config.yaml"),
        (
            "run/containerd",
            "the container runtime's socket unix:///var/run/containerd/containerd.sock",
        ),
    ] {
        let image = beside("kubeadm");
        fs::create_dir_all(image.path("run/containerd")).unwrap();
        std::os::unix::fs::symlink("/run", image.path("var/run")).unwrap();
        fs::set_permissions(image.path(open), fs::Permissions::from_mode(0o777)).unwrap();
        let tree = image.tree();
        for force in [false, true] {
            let asked = InstallOptions { force, ..options(&image, false) };
            let error = install_on(&asked, None).unwrap_err().to_string();
            assert!(error.starts_with(what), "{error}");
            assert!(error.contains(&format!("/{open}: every user may write to it")), "{error}");
            assert_eq!(image.tree(), tree);
        }
    }
    // So is a kubelet's configuration that is taken for its credentials.
    let image = beside("openshift");
    let companion =
        Companion { kubeconfig: Some("/etc/kubernetes/kubelet.conf".into()), ..Default::default() };
    let error =
        install_on(&InstallOptions { companion: Some(companion), ..options(&image, false) }, None);
    assert!(matches!(error, Err(InstallError::KubeletPath { .. })), "{error:?}");
}
