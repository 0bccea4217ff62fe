"""The router in front of one prefill/decode pair: OpenAI API in, two legs per turn out."""
