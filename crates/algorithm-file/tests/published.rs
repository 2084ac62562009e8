use aicpu_algorithm_file::AlgorithmFile;
#[test]
fn tmp() {
        let text = std::fs::read_to_string("/work/shared/data/msccl/all-reduce-ring-simple.xml").unwrap();
        let file = AlgorithmFile::parse(&text).unwrap();
        let s = &file.scripts(false).unwrap()[8];
        for e in &s.entries[..60] { println!("{:?}", e.instruction().unwrap()); }
}
