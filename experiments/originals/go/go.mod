module timerbench/originals

go 1.23.0
