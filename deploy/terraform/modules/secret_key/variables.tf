variable "project" {
  description = "Id of the project."
  type        = string
}

variable "region" {
  description = "Where the secret is: the region of the processes."
  type        = string
}

variable "name" {
  description = "What its name begins with."
  type        = string
  default     = "wakeq"
}

variable "readers" {
  description = "Addresses of the service accounts that register targets and sign for them, by names of your choice."
  type        = map(string)
}
