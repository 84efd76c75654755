variable "project" {
  description = "The project's id."
  type        = string
}

variable "region" {
  description = "Region of the subnetwork."
  type        = string
}

variable "name" {
  description = "Name of the network."
  type        = string
  default     = "wakeq"
}

variable "ip_cidr_range" {
  description = "Addresses of the subnetwork. Cloud Run takes up to four per instance."
  type        = string
  default     = "10.20.0.0/22"
}
