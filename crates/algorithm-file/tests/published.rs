use aicpu_algorithm_file::AlgorithmFile;
#[test]
fn tmp() {
    for f in ["all-reduce-ring-simple.xml", "alltoall-8n-0-9kb.xml"] {
        let text = std::fs::read_to_string(format!("/work/shared/data/msccl/{f}")).unwrap();
        let t = std::time::Instant::now();
        let file = AlgorithmFile::parse(&text).map_err(|e| e.to_string()).unwrap();
        println!("{f}: {:?} {:?}", t.elapsed(), file.needs());
        for ip in [false, true] { if let Ok(s) = file.scripts(ip) {
            println!("  {ip} entries {:?} {:?}", s.iter().map(|s| s.entries.len()).collect::<Vec<_>>(), s[0].header);
            for s in s { wire::script::Script::new(&s.header, &s.entries).unwrap(); }
        } }
    }
}
