// Package meter keeps metrics for Prometheus with what the reference page says of
// them: what is registered here is what is documented.
package meter
