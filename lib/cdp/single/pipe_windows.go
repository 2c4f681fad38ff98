package single

func (p *pipe) try(frame []byte) (rest []byte, err error) { return frame, nil }
